"""The SGLang plug-in on npu: what each of its functions launches and copies, that nothing waits, and the CPU's values.

SGLang itself is not here: what the plug-in reads of it is a plain object (tests/engines/sglang has the real one).
"""

from types import SimpleNamespace

import pytest
import torch
from npu.test_step_path import launches, one_step

PAGE, WINDOW, WIDTH, COLUMNS, BUCKET = 128, 128, 4, 20, 5
LENGTHS = {1: 126, 2: 5, 4: 300}


class Mode:
    """Stands for SGLang's ForwardMode."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, question):
        return lambda: question == f"is_{self.name}"


def tables(device):
    """Slots of pages in no order, a mapping page by page, pages of the ratio-128 pool."""
    generator = torch.Generator().manual_seed(3)
    pages = torch.randperm(120, generator=generator)[: 6 * COLUMNS].view(6, COLUMNS) + 1
    slots = (pages[:, :, None] * PAGE + torch.arange(PAGE)).view(6, -1).int()
    swa_pages = torch.randperm(121, generator=generator)
    mapping = (swa_pages[:, None] * PAGE + torch.arange(PAGE)).view(-1)
    sidecar = torch.randint(1, 50, (6, 2), generator=generator, dtype=torch.int32)
    return SimpleNamespace(
        req_to_token=slots.to(device), mapping=mapping.to(device), req_to_c128_sidecar=sidecar.to(device)
    )


def backend_on(device):
    held = tables(device)
    pools = {ratio: SimpleNamespace(ring_size=ring, dummy_state_loc=9999) for ratio, ring in ((4, 16), (128, 256))}
    attention = SimpleNamespace(
        req_to_token=held.req_to_token,
        req_to_token_pool=SimpleNamespace(req_to_c128_sidecar=held.req_to_c128_sidecar, c128_page_size=16),
        token_to_kv_pool=SimpleNamespace(full_to_swa_index_mapping=held.mapping),
        page_size=PAGE,
        _dsv4_has_c4=True,
        _dsv4_has_c128=True,
        _dsv4_unique_compress_ratios=[0, 4, 128],
        _dsv4_sliding_window_size=WINDOW,
        _dsv4_state_pools_by_ratio=pools,
        _dsv4_graph_tokens_per_req=WIDTH,
        _is_dspark_algorithm=False,
        _is_dspark_draft_worker=False,
        _graph_table_high_water={},
        _refresh_graph_kernel_metadata=lambda context: None,
    )
    tokens = BUCKET * WIDTH

    def buffer(*shape, dtype=torch.int32):
        return torch.zeros(shape, dtype=dtype).to(device)

    attention.graph_metadata = {f"{pool}_page_table": buffer(BUCKET, COLUMNS) for pool in ("swa", "c4", "c128")}
    attention.forward_metadata = SimpleNamespace(
        actual_seq_lengths_kv=buffer(BUCKET),
        start_pos=buffer(BUCKET),
        seqused=buffer(BUCKET),
        swa_loc=buffer(tokens, dtype=torch.int64),
        c4_loc=buffer(tokens // 4 + BUCKET, dtype=torch.int64),
        c128_loc=buffer(BUCKET, dtype=torch.int64),
        positions_cmp_padding_c4=buffer(tokens // 4 + BUCKET, dtype=torch.int64),
        positions_cmp_padding_c128=buffer(BUCKET, dtype=torch.int64),
        dsv4_explicit_state_block_tables={4: buffer(BUCKET, 8 + WIDTH), 128: buffer(BUCKET, 128 + WIDTH)},
        seq_lens_cpu_int=None,
    )
    return attention


def batch_on(device, mode, size):
    """LENGTHS in a batch of so many rows."""
    lens = list(LENGTHS.values()) + [0] * (size - len(LENGTHS))
    requests = list(LENGTHS) + [0] * (size - len(LENGTHS))
    tokens = len(LENGTHS) * WIDTH

    def tensor(values, dtype=torch.int64):
        return torch.tensor(values, dtype=dtype).to(device)

    bundle = SimpleNamespace(out_full_loc=tensor([0] * tokens))
    return SimpleNamespace(
        forward_mode=Mode(mode),
        actual_forward_mode=None,
        batch_size=size,
        req_pool_indices=tensor(requests),
        req_pool_indices_cpu=torch.tensor(requests),
        seq_lens=tensor(lens),
        seq_lens_cpu=torch.tensor(lens),
        extend_seq_lens_cpu=[3] * size,
        extend_prefix_lens=tensor([n - 3 for n in lens]),
        extend_prefix_lens_cpu=[n - 3 for n in lens],
        out_cache_loc=tensor([0] * tokens),
        out_cache_loc_dsv4=bundle,
        positions=tensor([0] * size * WIDTH),
        spec_info=SimpleNamespace(draft_token_num=WIDTH),
    )


def tensors_of(metadata):
    """Every tensor of a metadata object, on the host."""
    found = {}
    for name, value in vars(metadata).items():
        named = {f"{name}.{key}": entry for key, entry in value.items()} if isinstance(value, dict) else {name: value}
        found.update({key: entry.cpu() for key, entry in named.items() if isinstance(entry, torch.Tensor)})
    return found


@pytest.fixture
def plugin(ops, monkeypatch):
    from dsv4_npu_ops.engines.sglang import bundle, eager, graphs, versions

    for module in (versions, eager):
        monkeypatch.setattr(module, "installed", lambda: (0, 5, 23))
    return SimpleNamespace(bundle=bundle, eager=eager, graphs=graphs)


@pytest.mark.parametrize("mode", ["target_verify", "decode"])
def test_a_graphs_refresh_is_one_launch_and_one_copy_of_lengths(sim, plugin, mode):
    results = {}
    for device in ("cpu", "npu"):
        attention, batch = backend_on(device), batch_on(device, mode, BUCKET)
        plugin.graphs.apply_graph_metadata(None, attention, batch)  # finds the tables
        if device == "npu":
            with one_step(sim) as counted:
                plugin.graphs.apply_graph_metadata(None, attention, batch)
            assert launches(counted) == {"fill_step": 1}
            copies = {name: n for name, n in counted.items() if name.startswith("copy.h2d") and "bytes" not in name}
            assert sum(copies.values()) == (mode == "target_verify"), counted
        results[device] = tensors_of(attention.forward_metadata) | tensors_of(attention)
    assert results["cpu"].keys() == results["npu"].keys()
    for name, expected in results["cpu"].items():
        assert torch.equal(expected, results["npu"][name]), name


@pytest.mark.parametrize("mode", ["target_verify", "decode", "extend_without_speculative"])
def test_eager_metadata_is_one_launch(sim, plugin, mode):
    results = {}
    for device in ("cpu", "npu"):
        attention, batch = backend_on(device), batch_on(device, mode, len(LENGTHS))
        attention.forward_metadata = SimpleNamespace(seq_lens_cpu_int=batch.seq_lens_cpu.int() + WIDTH)
        plugin.eager.build_compress_metadata(None, attention, batch)
        if device == "npu":
            torch.npu.synchronize()
            sim.reset_counters()
            plugin.eager.build_compress_metadata(None, attention, batch)
            torch.npu.current_stream().npu_stream  # noqa: B018
            counted = dict(sim.counters())
            assert launches(counted) == {"fill_step": 1}
            assert not [name for name in counted if name.startswith(("run.", "sync.", "copy.d2h", "operator."))], (
                counted
            )
        results[device] = tensors_of(attention.forward_metadata)
    for name, expected in results["cpu"].items():
        assert torch.equal(expected, results["npu"][name]), name


def test_a_bundle_is_one_launch_and_one_copy_of_lengths(sim, plugin):
    results = {}
    for device in ("cpu", "npu"):
        held, batch = tables(device), batch_on(device, "target_verify", len(LENGTHS))
        batch.req_to_token_pool = SimpleNamespace(
            req_to_token=held.req_to_token, req_to_c128_sidecar=held.req_to_c128_sidecar, c128_page_size=16
        )
        batch.token_to_kv_pool_allocator = SimpleNamespace(full_to_swa_index_mapping=held.mapping, page_size=PAGE)

        class Bundle(SimpleNamespace):
            def __init__(self, full, swa, c4, c128):
                super().__init__(full=full, swa=swa, c4=c4, c128=c128)

        batch.out_cache_loc_dsv4 = Bundle(None, None, None, None)
        made = plugin.bundle.build_verify_bundle(None, batch, WIDTH)
        if device == "npu":
            torch.npu.synchronize()
            sim.reset_counters()
            made = plugin.bundle.build_verify_bundle(None, batch, WIDTH)
            torch.npu.current_stream().npu_stream  # noqa: B018
            counted = dict(sim.counters())
            assert launches(counted) == {"fill_step": 1}
            assert not [name for name in counted if name.startswith(("run.", "sync.", "copy.d2h", "operator."))], (
                counted
            )
        results[device] = tensors_of(made)
    for name, expected in results["cpu"].items():
        assert torch.equal(expected, results["npu"][name]), name
