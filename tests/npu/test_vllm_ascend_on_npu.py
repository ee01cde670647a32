"""The vLLM-Ascend plug-in on npu: what each of its functions launches, that nothing waits, and the CPU's values.

vLLM-Ascend itself is not here: what the plug-in reads of it is a plain object (tests/engines/vllm_ascend has the real
one).
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from npu.test_step_path import launches

GROUPS = (("c4", 128, 4), ("c128", 128, 128), ("swa", 128, 1), ("c4_state", 8, 1), ("c128_state", 32, 1))
LENGTHS, WIDTH, TOKENS, CONTEXT, DIM, STEPS = [130, 9, 304, 512], 4, 64, 1024, 8, 3
KEYS = ("main", "compressed")


class Metadata:
    """An object with fields."""


class Builder:
    """A metadata builder with the buffers of one."""

    hadamard = None
    metadata_cls = Metadata

    def __init__(self, device, ratio):
        def buffer(*shape):
            return torch.zeros(shape, dtype=torch.int32).to(device)

        self.compressor_ratio, self.decode_threshold, self.speculative_config = ratio, WIDTH, None
        self.model_config = SimpleNamespace(
            hf_config=SimpleNamespace(
                model_type="deepseek_v4",
                num_attention_heads=4,
                index_topk=8,
                index_n_heads=4,
                index_head_dim=4,
                sliding_window=128,
            ),
            get_head_size=lambda: 64,
            max_model_len=CONTEXT,
        )
        self.slot_mapping = buffer(TOKENS, 2)
        self.start_pos_prefill, self.start_pos_decode = buffer(8), buffer(8)
        self.decode_sas_metadata, self.decode_qli_metadata = buffer(1024), buffer(1024)
        self.spec_slot_mapping = [buffer(TOKENS, 2) for _ in range(STEPS)]
        self.spec_sas_metadata = [buffer(1024) for _ in range(STEPS)]
        self.seqused_q = self.cu_seqlens_ori_kv = self.cu_seqlens_cmp_kv = self._zero_i32 = buffer(1)
        self.block_size = 128


class Adaptor:
    """What depends on the kind of NPU, as for A2 and A3."""

    given = None

    get_dsa_sparse_attn_metadata_kwargs = staticmethod(lambda device: {})
    get_dsa_sparse_attn_metadata_op = staticmethod(lambda: lambda **arguments: Adaptor.given)
    get_dsa_decode_cu_seqlens_cmp_kv = staticmethod(lambda given: given)
    get_dsa_decode_cu_seqlens_ori_kv = staticmethod(lambda cache, key, lens, rows, zero, fallback: fallback)
    get_dsa_compressor_slot_mapping_format = staticmethod(lambda: 2)
    pad_dsa_decode_slot_mapping = staticmethod(lambda slots, *_: slots)


class Proxy(SimpleNamespace):
    """RoPE rows by table, and slices of them."""

    def __init__(self, rows, is_cos):
        super().__init__(rows=rows, i=0 if is_cos else 1)

    def __getitem__(self, index):
        def cut(rows):
            return {name: (cos[index], sin[index]) for name, (cos, sin) in rows.items()}

        return Proxy({key: cut(rows) for key, rows in self.rows.items()}, self.i == 0)


class Group:
    """Layers of one kind, with their builder."""

    def __init__(self, builder, block_size):
        self.builder, self.kv_cache_spec = builder, SimpleNamespace(block_size=block_size)

    def get_metadata_builder(self, ubatch=0):
        return self.builder


class BlockTable:
    """The blocks of a KV-cache group."""

    def __init__(self, table, block_size):
        self.table, self.block_size = table, block_size

    def get_device_tensor(self):
        return self.table


class World:
    """One device's runner, builders, tables and drafter."""

    def __init__(self, device):
        generator = torch.Generator().manual_seed(2)
        tables = {
            name: torch.randint(1, 99, (8, -(-CONTEXT // (block * ratio))), generator=generator, dtype=torch.int32)
            for name, block, ratio in GROUPS
        }
        cos, sin = torch.randn(2, CONTEXT, 1, 1, DIM, generator=generator)

        def on(values, dtype=torch.int32):
            return torch.as_tensor(values, dtype=dtype).to(device)

        self.state = SimpleNamespace(
            full_rope_cache={key: (cos.to(device), sin.to(device)) for key in KEYS},
            registry_summary={key: {"default"} for key in KEYS},
            runtime_buffer={
                key: {"default": tuple(torch.zeros(TOKENS, 1, 1, DIM).to(device) for _ in range(2))} for key in KEYS
            },
            spec_runtime_buffer={},
        )
        offsets = torch.arange(0, len(LENGTHS) * WIDTH + 1, WIDTH, dtype=torch.int32)
        self.builders = [Builder(device, ratio) for _, _, ratio in GROUPS]
        self.runner = SimpleNamespace(
            use_compress=True,
            use_cp=False,
            max_model_len=CONTEXT,
            query_start_loc=SimpleNamespace(gpu=on(offsets), cpu=offsets),
            seq_lens=on([*LENGTHS, 0, 0, 0, 0]),
            positions=on([n - WIDTH + k for n in LENGTHS for k in range(WIDTH)], torch.int64),
            attn_groups=[[Group(b, block)] for b, (_, block, _) in zip(self.builders, GROUPS, strict=True)],
            input_batch=SimpleNamespace(
                block_table=[BlockTable(tables[name].to(device), block) for name, block, _ in GROUPS]
            ),
        )
        self.device = device

    def common(self, group):
        rows, runner = len(LENGTHS), self.runner
        return SimpleNamespace(
            num_reqs=rows,
            num_actual_tokens=rows * WIDTH,
            num_input_tokens=rows * WIDTH,
            max_query_len=WIDTH,
            max_seq_len=max(LENGTHS),
            query_start_loc=runner.query_start_loc.gpu,
            query_start_loc_cpu=runner.query_start_loc.cpu,
            seq_lens=runner.seq_lens[:rows],
            seq_lens_cpu=None,
            _seq_lens_cpu=torch.tensor(LENGTHS, dtype=torch.int32),
            positions=runner.positions,
            block_table_tensor=runner.input_batch.block_table[group].get_device_tensor()[:rows],
            attn_state=None,
        )


@pytest.fixture
def plugin(ops, monkeypatch):
    dsa, rope = ModuleType("vllm_ascend.attention.dsa_v1"), ModuleType("vllm_ascend.ops.rope_dsv4")
    dsa.AscendDSAMetadataBuilder, dsa.DeviceOperator = Builder, Adaptor
    dsa.AscendDSADecodeMetadata = dsa.AscendDSAPrefillMetadata = Metadata
    dsa.AscendAttentionState = SimpleNamespace(SpecDecoding=1, ChunkedPrefill=2)
    dsa.get_tensor_model_parallel_world_size = lambda: 1
    dsa.split_decodes_and_prefills = lambda common, decode_threshold: (common.num_reqs, 0, common.num_actual_tokens, 0)
    rope.RopeDataProxy = Proxy
    tables = (torch.arange(CONTEXT * DIM).view(CONTEXT, 1, 1, DIM).float(),) * 2
    dsa.get_full_cos_and_sin_dsa = lambda name: tuple(table.to(Adaptor.given.device) for table in tables)
    for module in (dsa, rope):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("vllm_ascend", "vllm_ascend.attention", "vllm_ascend.ops"):
        package = ModuleType(name)
        package.__path__ = []
        monkeypatch.setitem(sys.modules, name, package)
    sys.modules["vllm_ascend.ops"].rope_dsv4 = rope
    given = SimpleNamespace(npu_vllm_quant_lightning_indexer_metadata=lambda **arguments: Adaptor.given)
    monkeypatch.setattr(torch.ops, "_C_ascend", given, raising=False)
    from dsv4_npu_ops.engines.vllm_ascend import builders, compressor, drafts, runner, samples, step

    # The simulated device has no operators of torch: what CANN's metadata are copied with is left out.
    monkeypatch.setattr(builders.cann, "indexer", lambda builder, queries: lambda *longest: Adaptor.given)
    monkeypatch.setattr(builders.cann, "publish", lambda buffers, values: None)
    return SimpleNamespace(
        rope=rope, builders=builders, compressor=compressor, drafts=drafts, runner=runner, samples=samples, step=step
    )


def counted(sim, call):
    """What a call asks of the device; nothing waits for it, or reads from it."""
    call()
    torch.npu.synchronize()
    sim.reset_counters()
    call()
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    found = dict(sim.counters())
    assert not [name for name in found if name.startswith(("run.", "sync.", "copy.d2h", "copy.h2d"))], found
    return found


def values(made):
    """Every tensor of results, on the host."""
    if isinstance(made, torch.Tensor):
        return made.cpu()
    if isinstance(made, (Metadata, SimpleNamespace)):
        made = {name: value for name, value in vars(made).items() if not name.startswith("_dsv4")}
    if isinstance(made, dict):
        return {name: values(value) for name, value in made.items()}
    return [values(value) for value in made] if isinstance(made, (list, tuple)) else made


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return all(map(same, a, b)) if isinstance(a, list) else a == b


def on_both(plugin, sim, run, expected):
    """Runs on a CPU and on npu; returns what the device counted."""
    results = []
    for device in ("cpu", "npu"):
        Adaptor.given = torch.arange(1024, dtype=torch.int32).to(device)
        world = World(device)
        plugin.rope._ROPE_STATE = world.state
        call = run(world)
        if device == "npu":
            found = counted(sim, call)
            assert launches(found) == expected, found
        results.append(values(call()))
    assert same(*results)
    return found


def test_all_builders_of_a_step_are_one_launch(sim, plugin):
    def run(world):
        def call():
            dictionaries = {f"{name}_ratio_to_sas_metadata": {} for name in ("prefill", "decode", "common")}
            plugin.step.current.step = plugin.runner._prepare(world.runner, 4, {})
            made = [
                plugin.builders.build(
                    None, builder, 0, world.common(i), block_size=GROUPS[i][1], num_reqs_actual=4, **dictionaries
                )
                for i, builder in enumerate(world.builders)
            ]
            plugin.step.current.step = None
            return made

        return call

    on_both(plugin, sim, run, {"fill_step": 1})


def test_layers_of_a_ratio_share_one_launch(sim, plugin):
    class Layer:
        """The module of its class says which adaptor it has."""

        compress_ratio = 4

    Layer.__module__ = "vllm_ascend.attention.dsa_v1"

    def run(world):
        dictionaries = {f"{name}_ratio_to_sas_metadata": {} for name in ("prefill", "decode", "common")}
        plugin.step.current.step = plugin.runner._prepare(world.runner, 4, {})
        made = plugin.builders.build(None, world.builders[0], 0, world.common(0), block_size=128, **dictionaries)
        plugin.step.current.step = None

        def call():
            made.decode.__dict__.pop(plugin.compressor.RESULTS)
            return [plugin.compressor.compute_compressor_metadata(None, Layer(), made.decode) for _ in range(20)][-1]

        return call

    on_both(plugin, sim, run, {"compressor_metadata": 1})


@pytest.mark.parametrize("mode", ["NONE", "FULL"])
def test_steps_of_a_draft_are_one_launch(sim, plugin, mode):
    def run(world):
        group = Group(world.builders[2], 128)

        def buffers():
            return [torch.zeros(TOKENS, dtype=torch.int32).to(world.device) for _ in range(STEPS + 1)]

        drafter = SimpleNamespace(
            num_speculative_tokens=STEPS + 1,
            draft_attn_groups=[group],
            uses_mrope=False,
            has_gdn=False,
            runner=SimpleNamespace(),
            block_size=128,
            max_model_len=CONTEXT,
            method="mtp",
            arange=torch.arange(TOKENS, dtype=torch.int32).to(world.device),
            seq_lens_group=buffers(),
            query_start_loc_group=buffers(),
            _adjust_tensor=lambda tensor, rows: tensor,
        )
        world.state.spec_runtime_buffer = {
            key: {
                "default": [
                    [torch.zeros(TOKENS, 1, 1, DIM).to(world.device) for _ in range(STEPS + 1)] for _ in range(2)
                ]
            }
            for key in KEYS
        }
        kept = torch.tensor([n - 2 for n in LENGTHS], dtype=torch.int32).to(world.device)

        def call():
            common = world.common(2)
            return [
                plugin.drafts.attn_update_stack_num_spec_norm(
                    None, drafter, d, None, common, 4, 6, kept, SimpleNamespace(name=mode), attn_group=group
                )[1]
                for d in range(1, STEPS + 1)
            ]

        return call

    on_both(plugin, sim, run, {"draft_steps_apart": 1})


def test_what_a_drafter_makes_of_samples_is_one_launch(sim, plugin):
    def run(world):
        samples = torch.tensor([[7, 8, -1, -1], [9, -1, -1, -1], [1, 2, 3, 4], [5, 6, 7, -1]], dtype=torch.int32)
        samples = samples.to(world.device)
        speculative = SimpleNamespace(num_draft_tokens=[3] * 4)

        def call():
            return plugin.samples._advance((speculative, world.common(2)), samples, None, 0)

        return call

    found = on_both(plugin, sim, run, {"advance_step": 1})
    assert not [name for name in found if name.startswith("operator.")]
