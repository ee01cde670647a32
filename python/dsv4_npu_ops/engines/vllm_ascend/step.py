"""One launch for the builders of a step: start positions, and slots in every KV-cache group whose unit is the token."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any

from torch import Tensor

from dsv4_npu_ops.engines.hooks import Unexpected
from dsv4_npu_ops.layout import PageTable, RequestTables, StepRows
from dsv4_npu_ops.layout.kept_sizes import KeptSizes
from dsv4_npu_ops.layout.kv_layout import POOLS
from dsv4_npu_ops.layout.step import STEP_FIELDS
from dsv4_npu_ops.ops.step import bind_step, bits

TOKEN_POOLS = ("swa", "c4_state", "c128_state", "full")
"""Pools that stand for groups of the engine, in their order: to slots of tokens a pool is a table and a block size."""

NO_SLOTS = [-1] * len(POOLS)
"""What the engine's kernels take for no slot: -1, and as a pair (-1, P - 1)."""

_ADOPTED = "_dsv4_npu_ops_builders"


@dataclass(frozen=True)
class TokenGroup:
    """A KV-cache group with a slot for each token.

    Attributes:
        table: int32 ``[requests, columns]`` blocks.
        block_size: slots of a block.
        slots: ``[tokens, 2]`` pairs (block, offset) or ``[tokens]`` slots, which its builders publish.
    """

    table: Tensor
    block_size: int
    slots: Tensor


class Launches:
    """As few launches as serve some groups, since one knows four pools of tokens; without groups one, for start
    positions.

    Attributes:
        sizes: what steps of one size have in common (``batch.Size``), because such steps follow each other.
    """

    def __init__(self, groups: Iterable[TokenGroup], longest: int) -> None:
        """
        Args:
            longest: tokens of the longest request.
        """
        self.sizes: KeptSizes[Any] = KeptSizes()
        groups = list(groups)
        self._parts: list[tuple[RequestTables, list[Tensor], list[int]]] = []
        for first in range(0, max(1, len(groups)), len(TOKEN_POOLS)):
            named = dict(zip(TOKEN_POOLS, groups[first : first + len(TOKEN_POOLS)], strict=False))
            # All that the tables have room for: the engine asks nothing of lengths beyond the longest one.
            room = min((group.table.shape[1] * group.block_size for group in named.values()), default=longest)
            pools = {pool: PageTable(group.table, group.block_size) for pool, group in named.items()}
            fields = [STEP_FIELDS.index(f"out_{pool}_loc") for pool in named]
            tables = RequestTables.of(pools, max_context_len=max(1, room))
            self._parts.append((tables, [group.slots for group in named.values()], fields))

    def bind(
        self,
        offsets: Tensor,
        seq_lens: Tensor,
        tokens: int,
        start_pos: Tensor,
        requests: int,
        rows: int,
        rope: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]] = (),
    ) -> list[Callable[[], object]]:
        """What fills ``start_pos[:rows]``, with 0 in rows of padding behind the requests, and slots of the tokens, with
        -1 behind those of the requests.

        Args:
            rope: up to two bases of which the first launch gathers the rows of the tokens (``RopeRows.tables``).
        """
        step_rows = StepRows.mixed(offsets[: requests + 1], seq_lens[:requests])
        calls: list[Callable[[], object]] = []
        for i, (tables, slots, fields) in enumerate(self._parts):
            named = dict(zip(fields, (group_slots[:tokens] for group_slots in slots), strict=True))
            token_tables: dict[str, Any] = {}
            if i == 0:
                named[STEP_FIELDS.index("start_pos")] = start_pos[:requests]
                for base, tensors in zip(("main", "compress"), rope, strict=False):
                    token_tables |= zip((f"{base}_rope_cos", f"{base}_rope_sin"), tensors[:2], strict=True)
                    wanted = STEP_FIELDS.index(f"{base}_cos"), STEP_FIELDS.index(f"{base}_sin")
                    named |= zip(wanted, tensors[2:], strict=True)
            out = [buffer for _, buffer in sorted(named.items(), key=lambda item: item[0])]
            arguments = tables, step_rows, out, bits(list(named)), None, None, None, NO_SLOTS
            call = bind_step(*arguments, **token_tables)
            calls.append(partial(call, step_rows.seq_lens, None, step_rows.operand))
        if requests < rows:
            calls.append(start_pos[requests:rows].zero_)
        return calls


@dataclass(eq=False)
class Builders:
    """The builders of a model runner and what they share.

    A captured graph reads what builders publish at fixed addresses. So those of one runner are given common buffers for
    what is the same in all of them, before anything is captured: start positions; pairs of a KV-cache group;
    attention's metadata of a compress ratio; the indexer's. The engine's own code goes on working with them.
    """

    made_of: tuple[Any, ...]
    launches: Launches
    start_pos: Tensor


def builders_of(runner: Any, builder_type: type) -> Builders:
    """All builders of a runner, adopted once, and again when the engine has made others.

    Raises:
        Unexpected: something is not where this plug-in knows it.
    """
    known: Builders | None = getattr(runner, _ADOPTED, None)
    made = runner.attn_groups, len(runner.attn_groups), runner.input_batch, runner.query_start_loc.gpu, runner.seq_lens
    if known is None or not all(map(is_, known.made_of, made)):
        known = _adopt(runner, builder_type, made)
        setattr(runner, _ADOPTED, known)
    return known


def _adopt(runner: Any, builder_type: type, made_of: tuple[Any, ...]) -> Builders:
    groups = [[group.get_metadata_builder(0) for group in attn_groups] for attn_groups in runner.attn_groups]
    tables = [runner.input_batch.block_table[i] for i in range(len(groups))]
    everyone = [builder for group in groups for builder in group]
    if not everyone or any(type(builder) is not builder_type for builder in everyone):
        raise Unexpected("builders of other kinds than AscendDSAMetadataBuilder")
    token_groups = []
    for attn_groups, group, table in zip(runner.attn_groups, groups, tables, strict=True):
        sizes = {attn_group.kv_cache_spec.block_size for attn_group in attn_groups}
        if sizes != {table.block_size}:
            raise Unexpected(f"blocks of {sorted(sizes)} slots and a table for blocks of {table.block_size}")
        if all(builder.compressor_ratio <= 1 for builder in group):
            share(group, "slot_mapping")
            token_groups.append(TokenGroup(table.get_device_tensor(), table.block_size, group[0].slot_mapping))
    share(everyone, "start_pos_prefill", "start_pos_decode", "decode_qli_metadata")
    for ratio in {max(1, builder.compressor_ratio) for builder in everyone}:
        share([b for b in everyone if max(1, b.compressor_ratio) == ratio], "decode_sas_metadata")
    launches = Launches(token_groups, int(runner.max_model_len))
    return Builders(made_of, launches, everyone[0].start_pos_decode)


def share(builders: Iterable[Any], *names: str) -> None:
    """Gives all builders the first one's tensors."""
    first, *others = builders
    for name in names:
        for other in others:
            if getattr(other, name).shape != getattr(first, name).shape:
                raise Unexpected(f"{name} of different shapes in two builders")
            setattr(other, name, getattr(first, name))


ENGINES_OWN = object()
"""The builders are to do as the engine does: nobody has looked at this step."""


class _Current(threading.local):
    step: Any = None


current = _Current()
"""``step``: ``Builders`` whose launch has been made for the step that is built now, ``ENGINES_OWN``, or None outside of
one."""
