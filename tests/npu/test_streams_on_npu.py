"""The ops on streams: memory that another stream still reads."""

import pytest
import torch


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "not-recorded"])
def test_record_stream_keeps_the_memory_of_an_argument(sim, ops, recorded):
    side = torch.npu.Stream()
    table = torch.arange(40, dtype=torch.float32).view(10, 4)
    on_npu, positions = table.to("npu"), torch.tensor([7, 2]).to("npu")
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        rows, _ = ops.rope_gather(on_npu, on_npu, positions)
    if recorded:
        positions.record_stream(side)
    address = positions.data_ptr()
    del positions
    # The side stream has not run yet: reused memory gives the gather other positions.
    other = torch.tensor([0, 1]).to("npu")
    assert (other.data_ptr() != address) is recorded
    with torch.npu.stream(side):
        assert torch.equal(rows.cpu(), table[[7, 2] if recorded else [0, 1]])
