"""A little vLLM-Ascend on a CPU: its own runner, builders, block tables and RoPE tables over random steps."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from dsv4_npu_ops.engines import patch
from dsv4_npu_ops.engines.hooks import Hook, instead
from dsv4_npu_ops.engines.settings import Mode
from dsv4_npu_ops.engines.vllm_ascend import all_hooks
from engines.vllm_ascend.loading import CpuGpuBuffer, load
from engines.wheels import WHEELS

VERSION = os.environ.get("VLLM_ASCEND_VERSION", "0.23.0")
va = load(WHEELS["vllm-ascend", VERSION].unpacked(), VERSION)
State = va.dsa.AscendAttentionState
Builder = va.dsa.AscendDSAMetadataBuilder
Builder.hadamard = torch.eye(2)
va.utils.is_pd_decode_recompute_scheduler_enabled = lambda: False

ROPE_DIM, WINDOW, YARN_FACTOR, BLOCKS = int(os.environ.get("ENGINE_ROPE_DIM", 8)), 128, 16, 4000
BASES = {0: 10000, 4: 160000, 128: 160000}


class CannOps:
    """CANN's own metadata ops: a tensor that depends on the arguments, which are kept."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def _called(self, name: str, arguments: dict[str, Any]) -> torch.Tensor:
        plain = {key: plain_value(arguments[key]) for key in sorted(arguments)}
        self.calls.append((name, plain))
        listed = [value if isinstance(value, list) else [value] for value in plain.values()]
        numbers = [int(value) for values in listed for value in values if isinstance(value, int)]
        seed = sum((i + 1) * (number % 65537) for i, number in enumerate(numbers))
        return torch.arange(1024, dtype=torch.int32) * 7 + seed

    def npu_sparse_attn_sharedkv_metadata(self, **arguments: Any) -> torch.Tensor:
        return self._called("sas", arguments)

    npu_kv_quant_sparse_attn_sharedkv_metadata = npu_sparse_attn_sharedkv_metadata

    def npu_vllm_quant_lightning_indexer_metadata(self, **arguments: Any) -> torch.Tensor:
        return self._called("qli", arguments)

    @staticmethod
    def compressor_metadata(cos, sin, offsets, start_pos, table, block, form, ratio, rows, requests):
        """The engine's, by its rule: groups behind the last row are cut off."""
        out_cos, out_sin = torch.ones(rows, cos.shape[1]), torch.zeros(rows, cos.shape[1])
        slots = torch.full((rows, 2), -1, dtype=torch.int32)
        slots[:, 1] = block - 1
        row = 0
        for i in range(requests):
            start, count = int(start_pos[i]), int(offsets[i + 1] - offsets[i])
            if start < 0:
                continue
            for group in range(start // ratio, (start + count) // ratio):
                if row == rows:
                    break
                column = group // block
                if column < table.shape[1] and table[i, column] >= 0 and group * ratio < cos.shape[0]:
                    out_cos[row], out_sin[row] = cos[group * ratio], sin[group * ratio]
                    slots[row, 0], slots[row, 1] = table[i, column], group % block
                row += 1
        if form == 1:
            slots = torch.where(slots[:, 0] < 0, -1, slots[:, 0] * block + slots[:, 1]).int()
        return out_cos, out_sin, slots


cann = CannOps()
torch.ops._C_ascend = cann


def plain_value(value: Any) -> Any:
    """An argument or a field as something that can be compared."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, va.rope.RopeDataProxy):
        return {
            key: {name: pair[value.idx].tolist() for name, pair in rows.items()} for key, rows in value._data.items()
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


def snapshot(value: Any) -> Any:
    """A copy that the next step does not change."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, va.rope.RopeDataProxy):
        return {
            (key, name): pair[value.idx].clone() for key, rows in value._data.items() for name, pair in rows.items()
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: snapshot(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [snapshot(item) for item in value]
    return value


def differences(expected: Any, given: Any, place: str = "") -> Iterator[str]:
    """Where two snapshots differ: in a type, a shape, a dtype or a value."""
    if type(expected) is not type(given):
        yield f"{place}: {type(expected).__name__} and {type(given).__name__}"
    elif isinstance(expected, torch.Tensor):
        if expected.shape != given.shape or expected.dtype != given.dtype:
            yield f"{place}: {expected.dtype} {list(expected.shape)} and {given.dtype} {list(given.shape)}"
        elif not torch.equal(expected, given):
            index = (expected != given).nonzero()[0].tolist()
            yield f"{place}{index}: {expected[tuple(index)]} and {given[tuple(index)]}"
    elif isinstance(expected, dict):
        for key in expected | given:
            if key in expected and key in given:
                yield from differences(expected[key], given[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}: only in one"
    elif isinstance(expected, list) and len(expected) == len(given):
        for i, (a, b) in enumerate(zip(expected, given, strict=True)):
            yield from differences(a, b, f"{place}[{i}]")
    elif expected != given:
        yield f"{place}: {expected} and {given}"


class Switch:
    """Whether replaced functions are ours.

    Attributes:
        ours: by the engine's dotted path, what stands in its place while this is on.
    """

    on = False

    def __init__(self) -> None:
        self.ours: dict[str, Callable[..., Any]] = {}

    def switched(self, hook: Hook) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        place = instead(hook, Mode.ON)
        assert place is not None

        def choose(original: Callable[..., Any]) -> Callable[..., Any]:
            ours = self.ours[hook.target] = place(original)
            return lambda *args, **kwargs: (ours if self.on else original)(*args, **kwargs)

        return choose


switch = Switch()


def patch_all() -> None:
    """Every hook, behind the switch."""
    for hook in all_hooks():
        patch.replace(hook.target, switch.switched(hook))


patch_all()


@contextmanager
def ours() -> Iterator[None]:
    """The engine with this package."""
    switch.on = True
    try:
        yield
    finally:
        switch.on = False


def never(*args: Any, **kwargs: Any) -> None:
    """In the place of say_once: nothing is expected to fall back."""
    raise AssertionError(args)


GROUPS = (
    # name, block size, compress ratio, units in a column's block
    ("c4", 128, 4),
    ("c128", 128, 128),
    ("swa", 128, 1),
    ("c4_state", 8, 1),
    ("c128_state", 32, 1),
)


@dataclass
class Limits:
    rows: int = 12
    tokens: int = 768
    length: int = 1100
    drafts: int = 3


def config_of(limits: Limits) -> SimpleNamespace:
    hf = SimpleNamespace(
        model_type="deepseek_v4",
        num_attention_heads=16,
        index_topk=8,
        index_n_heads=4,
        index_head_dim=2,
        sliding_window=WINDOW,
        qk_rope_head_dim=ROPE_DIM,
        compress_ratios=[0, 4, 128],
    )
    model = SimpleNamespace(
        hf_config=hf,
        hf_text_config=hf,
        max_model_len=limits.length,
        enable_sleep_mode=False,
        get_head_size=lambda: 64,
        enable_return_routed_experts=False,
    )
    speculative = SimpleNamespace(
        num_speculative_tokens=limits.drafts, parallel_drafting=False, use_eagle=lambda: True, method="mtp"
    )
    return SimpleNamespace(
        model_config=model,
        scheduler_config=SimpleNamespace(max_num_seqs=limits.rows, max_num_batched_tokens=limits.tokens),
        speculative_config=speculative if limits.drafts else None,
        compilation_config=SimpleNamespace(
            cudagraph_mode=SimpleNamespace(has_full_cudagraphs=lambda: False), static_forward_context={}
        ),
        cache_config=SimpleNamespace(kv_sharing_fast_prefill=False),
    )


def register_rope(config: Any, length: int) -> None:
    """The engine's RoPE tables, as its layers make them."""
    for ratio, base in BASES.items():
        va.rope.ComplexExpRotaryEmbedding(
            config,
            f"layer.{ratio}.attn",
            ROPE_DIM,
            ROPE_DIM,
            -(-length // YARN_FACTOR),
            base,
            YARN_FACTOR,
            rope_groups=["default"] if ratio == 0 else ["default", f"c{ratio}"],
            beta_fast=32,
            beta_slow=1,
        )


class AttentionGroup:
    def __init__(self, builder: Any, spec: Any, names: list[str]) -> None:
        self.builder, self.kv_cache_spec, self.layer_names = builder, spec, names

    def get_metadata_builder(self, ubatch: int = 0) -> Any:
        return self.builder


@dataclass
class Row:
    """A request of a step: tokens in the cache before it, and new ones."""

    start: int
    new: int


@dataclass
class Batch:
    """Decodes and verifies first, then chunks."""

    rows: list[Row]
    padded_rows: int = 0
    padded_tokens: int = 0

    @property
    def tokens(self) -> int:
        return sum(row.new for row in self.rows)


class World:
    """A model runner with its builders and block tables."""

    def __init__(
        self, seed: int, limits: Limits | None = None, groups: Any = GROUPS, twice: tuple[str, ...] = ("c4", "c4_state")
    ) -> None:
        self.limits = limits = limits or Limits()
        self.config = config_of(limits)
        va.rope._ROPE_STATE.__init__()
        register_rope(self.config, limits.length)
        draws = random.Random(seed)
        names = [name for name, *_ in groups]
        self.names, self.ratios = names, {name: ratio for name, _, ratio in groups}
        specs = [
            SimpleNamespace(block_size=block, **({"compress_ratio": ratio} if ratio > 1 else {}))
            for _, block, ratio in groups
        ]
        kv_groups = [
            SimpleNamespace(kv_cache_spec=spec, layer_names=[f"{name}.0"])
            for name, spec in zip(names, specs, strict=True)
        ]
        tables = [
            va.block_table.BlockTable(
                block, limits.rows, -(-limits.length // (block * ratio)), limits.tokens, False, "cpu", [block]
            )
            for _, block, ratio in groups
        ]
        self.tables = va.block_table.MultiGroupBlockTable.__new__(va.block_table.MultiGroupBlockTable)
        self.tables.block_tables = tables
        runner = va.runner.NPUModelRunner.__new__(va.runner.NPUModelRunner)
        self.runner = runner
        rows, tokens = limits.rows + 1, limits.tokens
        runner.__dict__.update(
            vllm_config=self.config,
            model_config=self.config.model_config,
            cache_config=self.config.cache_config,
            speculative_config=None,
            drafter=None,
            kv_cache_config=SimpleNamespace(kv_cache_groups=kv_groups),
            input_batch=SimpleNamespace(
                block_table=self.tables,
                num_computed_tokens_cpu_tensor=torch.zeros(rows, dtype=torch.int32),
                num_prompt_tokens_cpu_tensor=torch.zeros(rows, dtype=torch.int32),
            ),
            query_start_loc=CpuGpuBuffer(rows + 1, dtype=torch.int32),
            seq_lens=torch.zeros(rows, dtype=torch.int32),
            optimistic_seq_lens_cpu=torch.zeros(rows, dtype=torch.int32),
            positions=torch.zeros(tokens, dtype=torch.int64),
            _dsa_positions_cpu_buf=torch.zeros(tokens, dtype=torch.int64),
            actual_seq_lengths_q=[],
            attn_state=State.ChunkedPrefill,
            decode_token_per_req=limits.drafts + 1,
            device=torch.device("cpu"),
            max_model_len=limits.length,
            use_compress=True,
            use_cp=False,
            pcp_size=1,
            dcp_size=1,
            use_async_spec_decode=False,
            enable_hamming_sparse=False,
            is_mm_prefix_lm=False,
            _has_gdn=False,
            _get_encoder_seq_lens=lambda *_: (None, None),
            attn_groups=[
                [AttentionGroup(self.builder(spec), spec, [f"{name}.{k}"]) for k in range(1 + (name in twice))]
                for name, spec in zip(names, specs, strict=True)
            ],
        )
        for table in tables:
            table.block_table.cpu.copy_(
                torch.tensor(
                    [
                        [draws.randint(1, BLOCKS) for _ in range(table.block_table.cpu.shape[1])]
                        for _ in range(limits.rows)
                    ]
                )
            )

    def builder(self, spec: Any) -> Any:
        return Builder(spec, [], self.config, torch.device("cpu"))

    def begin(self, batch: Batch) -> None:
        """What the runner prepares of a step before its metadata."""
        runner, rows = self.runner, batch.rows
        for table in self.tables.block_tables:
            table.block_table.copy_to_gpu()
        count, padded = len(rows), max(batch.padded_rows, len(rows))
        ends = np.cumsum([row.new for row in rows])
        offsets = runner.query_start_loc
        offsets.np[0], offsets.np[1 : count + 1] = 0, ends
        widths = np.diff(ends, append=batch.padded_tokens or ends[-1])
        for i in range(count, padded):  # dummy requests up to the padded tokens
            left = max(batch.padded_tokens, batch.tokens) - int(offsets.np[i])
            offsets.np[i + 1] = int(offsets.np[i]) + (left if i + 1 == padded else min(left, int(widths[0])))
        offsets.copy_to_gpu()
        offsets.gpu[padded + 1 :] = -1
        lengths = torch.tensor([row.start + row.new for row in rows], dtype=torch.int32)
        for buffer in (runner.seq_lens, runner.optimistic_seq_lens_cpu):
            buffer[:count], buffer[count:] = lengths, 0
        positions = torch.cat([torch.arange(row.start, row.start + row.new) for row in rows])
        for buffer in (runner.positions, runner._dsa_positions_cpu_buf):
            buffer[: batch.tokens] = positions
            buffer[batch.tokens :] = 3
        self.tables.compute_slot_mapping(count, offsets.gpu[: count + 1], positions)

    def metadata(self, batch: Batch, **options: Any) -> tuple[Any, Any]:
        """The runner's metadata of a step, by layer, and what its drafter gets."""
        return self.runner._build_attention_metadata(
            num_tokens=batch.tokens,
            num_tokens_padded=batch.padded_tokens or None,
            num_reqs=len(batch.rows),
            num_reqs_padded=batch.padded_rows or None,
            max_query_len=max(row.new for row in batch.rows),
            num_scheduled_tokens={},
            **options,
        )


def random_batch(draws: random.Random, limits: Limits, *, prefills: bool = True, padded: bool = False) -> Batch:
    """Decodes and verifies of different widths, first chunks and chunks; a padded graph batch has no chunks."""
    threshold, room = limits.drafts + 1, limits.length
    count = draws.randint(1, limits.rows - 1)
    chunks = draws.randint(0, min(count, 3)) if prefills and not padded else 0
    edges = [0, 1, 3, 4, 5, 7, 126, 127, 128, 129, 255, 256, 1023]
    rows = []
    for i in range(count):
        new = draws.randint(1, threshold) if i < count - chunks else draws.randint(threshold + 1, 180)
        start = draws.choice(edges) if draws.random() < 0.5 else draws.randint(0, room)
        rows.append(Row(min(start, room - new), new))
    batch = Batch(rows)
    if padded:
        batch.padded_tokens = batch.tokens + draws.randint(0, 9)
        batch.padded_rows = draws.randint(count + (batch.padded_tokens > batch.tokens), limits.rows)
        if batch.padded_rows == count:
            batch.padded_tokens = 0
    return batch
