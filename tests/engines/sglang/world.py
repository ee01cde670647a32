"""A little SGLang on a CPU: its own allocator, request pool, state pools and attention backend."""

from __future__ import annotations

import inspect
import os
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from dsv4_npu_ops.engines.hooks import version_tuple
from engines.sglang.loading import load
from engines.wheels import WHEELS

VERSION = os.environ.get("SGLANG_VERSION", "0.5.23")
PAGE, WINDOW, C128_PAGE = 128, 128, 16
SIX_NAMES = ("req_to_token", *(f"req_to_token_{pool}" for pool in ("swa", "c4", "c128", "c4_state", "c128_state")))
DEVICE = torch.device(os.environ.get("ENGINE_DEVICE", "cpu"))

sgl = load(WHEELS["sglang", VERSION].unpacked(), VERSION)
ForwardMode = sgl.batch_info.ForwardMode
OutCacheLoc = sgl.batch_info.DSV4OutCacheLoc
Backend = sgl.backend.DeepseekV4AscendAttnBackend
DraftBackend = sgl.backend.DeepseekV4AscendMultiStepDraftBackend
sgl.request_pool.get_schedule = lambda: SimpleNamespace(c128_page_size=C128_PAGE)
sgl.ascend = __import__(Backend.__mro__[1].__module__, fromlist=["x"])
sgl.ascend.get_parallel = lambda: SimpleNamespace(dcp_enabled=False, attn_tp_size=1)


SIX_TABLES = version_tuple(VERSION) < (0, 5, 18)
"""Whether every pool has a table of slots of its own."""

_STATE_POOL = inspect.signature(sgl.memory_pool.NPUCompressStatePool).parameters


class KVPool(sgl.base_swa_pool.BaseSWAKVPool):  # type: ignore[name-defined, misc]
    """What bookkeeping reads of DSV4NPUTokenToKVPool; state pools and translation are SGLang's own."""

    swa_page_size = PAGE

    def __init__(self, tokens: int, rows: int, speculates: bool) -> None:
        self.full_kv_pool = self.swa_kv_pool = None
        self.size = tokens
        self.c128_size = tokens // 128 + rows * C128_PAGE * 2
        self.c128_kv_pool = SimpleNamespace(kernel_page_size=C128_PAGE)
        self.state_pools: dict[int, Any] = {}
        if SIX_TABLES:
            return
        rings = {4: 16, 128: 256} if speculates else {4: 8, 128: 128}
        slots = {4: (tokens // PAGE + 1) * rings[4], 128: (rows + 1) * rings[128]}
        self.state_pools = {
            ratio: sgl.memory_pool.NPUCompressStatePool(
                size=slots[ratio],
                overlap=ratio == 4,
                head_dim=4,
                dtype=torch.float32,
                device=str(DEVICE),
                enable_memory_saver=False,
                ratio=ratio,
                ring_size=rings[ratio],
                swa_page_size=PAGE,
                **({"request_scoped": ratio == 128} if "request_scoped" in _STATE_POOL else {}),
            )
            for ratio in (4, 128)
        }
        self.compress_state_pools = list(self.state_pools.values())

    def register_mapping(self, mapping: torch.Tensor) -> None:
        self.full_to_swa_index_mapping = mapping

    def translate_loc_from_full_to_swa(self, locs: torch.Tensor) -> torch.Tensor:
        return self.full_to_swa_index_mapping[locs]

    def clear_request_scoped_state(self, row: int) -> None:
        pass

    def get_ring_size(self, ratio: int) -> int:
        return self.state_pools[ratio].ring_size


for _abstract in list(KVPool.__abstractmethods__):
    setattr(KVPool, _abstract, lambda self, *args, **kwargs: None)
KVPool.__abstractmethods__ = frozenset()


@dataclass
class World:
    """SGLang's pools and the requests that run in them."""

    rows: int
    context: int
    width: int = 4
    pages: int | None = None
    lengths: dict[int, int] = field(default_factory=dict)
    """Committed length by request row."""
    allocated: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tokens = (self.pages or (self.rows + 1) * (self.context // PAGE + 2)) * PAGE
        self.kv = KVPool(tokens, self.rows, self.width > 1)
        if SIX_TABLES:
            self._six_tables(tokens)
            return
        self.pool = sgl.request_pool.DSV4NPUReqToTokenPool(self.rows, self.context, str(DEVICE), False)
        self.allocator = sgl.allocator.DSV4NPUTokenToKVPoolAllocator(
            tokens, tokens, PAGE, torch.bfloat16, str(DEVICE), self.kv, False
        )
        self.pool.register_dsv4_allocator(self.allocator)

    def _six_tables(self, tokens: int) -> None:
        """SGLang's own tables, and pages for all that a row can hold: its allocator is not the plug-in's here."""
        self.pool = sgl.request_pool.DSV4NPUReqToTokenPool(self.rows, self.context, str(DEVICE), False)
        self.allocator = SimpleNamespace(page_size=PAGE)
        mapping = torch.zeros(tokens + 2 * PAGE, dtype=torch.int64, device=DEVICE)
        self.kv.register_mapping(mapping)
        self.allocator.full_to_swa_index_mapping = mapping
        self.allocator.translate_loc_from_full_to_swa = self.kv.translate_loc_from_full_to_swa
        draws = random.Random(self.rows)
        for name in SIX_NAMES:
            table = getattr(self.pool, name)
            columns = -(-table.shape[1] // PAGE)
            pages = draws.sample(range(1, table.shape[0] * columns + 1), table.shape[0] * columns)
            slots = torch.tensor(pages).view(-1, columns, 1) * PAGE + torch.arange(PAGE)
            table.copy_(slots.view(table.shape[0], -1)[:, : table.shape[1]])
        for row in range(self.pool.req_to_token.shape[0]):
            full = self.pool.req_to_token[row].long()
            known = full < mapping.shape[0]
            mapping[full[known]] = self.pool.req_to_token_swa[row][known].long()

    def extend(self, rows: list[int], ends: list[int]) -> Any:
        """What mem_cache/allocation.py does: slots up to the ends, and the tables."""
        starts = [self.allocated.get(row, 0) for row in rows]
        if SIX_TABLES:
            self.allocated.update(zip(rows, ends, strict=True))
            return None
        index = self.tensor(rows, torch.int64)
        prefix, seq = self.tensor(starts, torch.int64), self.tensor(ends, torch.int64)
        prefix_cpu, seq_cpu = torch.tensor(starts), torch.tensor(ends)
        last = torch.where(
            prefix > 0, self.pool.req_to_token[index, (prefix - 1).clamp(min=0)].long(), torch.full_like(prefix, -1)
        )
        bundle = self.allocator.alloc_extend(
            prefix,
            prefix_cpu,
            seq,
            seq_cpu,
            last,
            int((seq_cpu - prefix_cpu).sum()),
            req_pool_indices=index,
            req_to_token_pool=self.pool,
        )
        if bundle is None:
            return None
        done = 0
        for row, start, end in zip(rows, starts, ends, strict=True):
            self.pool.req_to_token[row, start:end] = bundle.out_full_loc[done : done + end - start].to(torch.int32)
            done += end - start
            self.allocated[row] = end
        batch = SimpleNamespace(out_cache_loc_dsv4=bundle, req_to_token_pool=self.pool)
        sgl.hooks.maybe_write_dsv4_extend(batch, torch.tensor(rows), prefix_cpu, seq_cpu)
        return bundle

    def reserve(self, rows: list[int], tokens: int) -> Any:
        """Whole pages for so many tokens behind the committed ones, as spec v2 does."""
        ends = [max(self.allocated.get(row, 0), -(-(self.lengths[row] + tokens) // PAGE) * PAGE) for row in rows]
        return self.extend(rows, [min(end, self.context) for end in ends])

    def start(self, row: int, length: int) -> None:
        """A request with so many committed tokens, prefilled in one chunk."""
        self.extend([row], [length])
        self.lengths[row] = length

    def slots(self, row: int, start: int, end: int) -> torch.Tensor:
        """Full slots of a request's tokens."""
        return self.pool.req_to_token[row, start:end]

    def tensor(self, values: list[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=DEVICE)


def backend_of(world: World, cls: type = Backend, *, is_draft: bool = False, algorithm: str = "eagle") -> Any:
    """SGLang's backend with the attributes that bookkeeping reads; CANN's metadata ops, which are absent here, give
    nothing."""
    self = cls.__new__(cls)
    self.req_to_token, self.req_to_token_pool = world.pool.req_to_token, world.pool
    self.token_to_kv_pool, self.page_size, self.device = world.kv, PAGE, DEVICE
    ratios = [] if is_draft else [0, 4, 128, 4]
    self._dsv4_compress_ratios, self._dsv4_unique_compress_ratios = ratios, list(dict.fromkeys(ratios))
    self._dsv4_has_c4, self._dsv4_has_c128 = 4 in ratios, 128 in ratios
    self._dsv4_state_pools_by_ratio = {} if is_draft else dict(world.kv.state_pools)
    self._is_eagle_algorithm, self._is_dspark_algorithm = algorithm == "eagle", algorithm == "dspark"
    self._is_dspark_draft_worker = is_draft and algorithm == "dspark"
    self.speculative_num_draft_tokens = self._dsv4_graph_tokens_per_req = world.width
    self.speculative_step_id, self._dsv4_index_topk, self._dsv4_kv_head_num = 0, 8, 1
    self.speculative_step_offset_npu = 1
    self._dsv4_sliding_window_size = self.sliding_window_size = WINDOW
    self.full_to_swa_index_mapping, self.is_hybrid_swa = world.kv.full_to_swa_index_mapping, True
    self.use_sliding_window_kv_pool, self.is_draft_worker, self.use_mla = False, is_draft, False
    self.max_context_len, self.enable_sparsity_driven_kv_offload = world.context, False
    self.q_head_num_padding = None
    self._kernel_metadata_from_parts = lambda **parts: {}
    self.forward_metadata, self.graph_mode = SimpleNamespace(), False
    if hasattr(Backend, "_copy_page_table_into_graph"):
        self._graph_table_high_water = {}
    return self


def random_lengths(draws: random.Random, rows: int, context: int, room: int) -> list[int]:
    """Lengths around the edges of groups and pages, and anywhere."""
    edges = [1, 3, 4, 5, 126, 127, 128, 129, 255, 256, 2047, 2048, 2049]
    most = context - room
    return [min(most, draws.choice(edges)) if draws.random() < 0.5 else draws.randint(1, most) for _ in range(rows)]


def explicit_state_tables(world: World, batch: Any, metadata: Any) -> dict[int, torch.Tensor]:
    """SGLang's own tables of states by ratio, for kernels that take them; empty until 0.5.17."""
    return {
        ratio: sgl.backend._build_explicit_state_block_table(
            compress_ratio=ratio,
            coff=2 if ratio == 4 else 1,
            state_pool=pool,
            token_to_kv_pool=world.kv,
            req_to_token=world.pool.req_to_token,
            req_pool_indices=batch.req_pool_indices,
            start_pos=metadata.start_pos,
            cu_seqlens=metadata.actual_seq_lengths_q_pa,
            seqused=metadata.seqused,
            max_input_capacity=metadata.dsv4_max_input_capacity,
        )
        for ratio, pool in world.kv.state_pools.items()
    }
