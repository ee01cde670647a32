"""device_errors() on the simulated NPU: bad values become entries that stay until they are cleared."""

import pytest
import torch

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")


@pytest.fixture
def ops(ops):
    ops.device_errors(clear=True)
    return ops


def bad_gather(ops, device="npu"):
    table = torch.zeros(4, 2).to(device)
    return ops.rope_gather(table, table, torch.tensor([1, 9, 3]).to(device))


def test_a_good_step_leaves_no_entry(ops):
    assert ops.device_errors() == []


def test_an_entry_says_where_and_what_and_stays_until_it_is_cleared(ops):
    table, table_rows = torch.zeros(4, 2).to("npu"), torch.tensor([1, 0, 3]).to("npu")
    bad_gather(ops)
    for clear in (False, False, True):
        ops.rope_gather(table, table, table_rows)  # all is well, and nothing is taken back
        (entry,) = ops.device_errors("npu:0", clear=clear)
        assert (entry.device, entry.op, entry.row, entry.value) == (torch.device("npu:0"), "rope_gather", 1, 9)
        assert str(entry) == "rope_gather on npu:0: row 1 has a position outside of the RoPE tables (value 9)"
    assert ops.device_errors("npu:0") == []


def test_entries_of_all_streams_are_waited_for(ops):
    with torch.npu.stream(torch.npu.Stream()):
        bad_gather(ops)
    assert len(ops.device_errors(clear=True)) == 1


def test_each_device_has_words_of_its_own(ops):
    bad_gather(ops, "npu:1")
    assert ops.device_errors("npu:0") == ops.device_errors("npu") == []
    assert [entry.device.index for entry in ops.device_errors()] == [1]
    assert len(ops.device_errors(1, clear=True)) == 1
    assert ops.device_errors() == []


def test_a_bad_row_of_a_step_is_padding_and_an_entry(ops):
    layout = ops.KVLayout(16, 32, 3, 64, dict.fromkeys(POOLS, 9), device="npu")
    tables = ops.RequestTables(layout)
    requests, lengths = torch.tensor([0, 7, 1]).to("npu"), torch.tensor([4, 5, 6]).to("npu")
    step = ops.build_compress_metadata_verify(tables, requests, lengths, 2)
    assert step.kv_lens.tolist() == [6, 1, 8]
    (entry,) = ops.device_errors(clear=True)
    assert (entry.op, entry.row, entry.value) == ("step", 1, 7)
    assert entry.what == "a request index outside of the tables"


def test_reading_is_the_only_wait(sim, ops):
    torch.npu.synchronize()
    sim.reset_counters()
    bad_gather_inputs = torch.zeros(4, 2).to("npu"), torch.tensor([9]).to("npu")
    waits = {name for name in sim.counters() if name.startswith("sync.")}
    ops.rope_gather(bad_gather_inputs[0], *bad_gather_inputs)
    assert {name for name in sim.counters() if name.startswith("sync.")} == waits
    assert len(ops.device_errors(clear=True)) == 1
