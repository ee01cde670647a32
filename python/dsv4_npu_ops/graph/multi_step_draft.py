"""Every step of a multi-step draft prepared ahead (docs/spec.md, draft steps)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4_npu_ops.cache.allocator import Integers
from dsv4_npu_ops.graph.static_inputs import StaticInputs
from dsv4_npu_ops.layout import DraftSteps, OutCacheLoc, RequestTables
from dsv4_npu_ops.ops import build_draft_steps


@dataclass(frozen=True, slots=True)
class DraftStep:
    """What one single-token pass of the MTP layer needs; views of N entries, (request, topk), then dummies.

    Attributes:
        out_cache_loc: slots in the one pool that drafts write to, or the dummy; nothing in the others, since MTP
            layers do not compress.
        positions: int64 ``[N]``; kv_lens: int32 ``[N]``; cos, sin: ``[N, D]``, as in ``DraftSteps``.
    """

    out_cache_loc: OutCacheLoc
    positions: Tensor
    kv_lens: Tensor
    cos: Tensor
    sin: Tensor


class MultiStepDraft:
    """Prepares the S draft steps of a speculative round in one launch, into buffers that are allocated once.

    No two steps share memory, and the caller's batch is only read. Slots come from a reservation laid out (request,
    topk, step), or with topk 1 from the request tables, which hold them after ``KVAllocator.reserve_extend``.

    Attributes:
        inputs: request indices and committed lengths of a captured round.
        reservation: int32 ``[num_rows * topk * num_steps]``, the slots of a captured round, or None where the tables
            have them. Zero at first.
        buffers: all steps, ``[num_steps, num_entries]``.
        steps: views of whole rows of ``buffers``, which a captured graph reads.

    Args:
        tables: request tables, read only.
        num_rows: the most requests of a batch.
        num_steps: S, passes of a round.
        rope_cos, rope_sin: ``[max_pos, D]`` tables of the MTP layer's base, at least ``max_context_len`` rows.
        topk: drafts of a request in each step.
        pad_to: a batch's entries are padded with dummies to a multiple of this.
        num_entries: room of a step, if more than those of ``num_rows`` padded are wanted.
        pool: whose slots drafts take, ``swa`` or ``full``.
        reserved: whether a reservation gives the slots; default with topk above 1.
        dummy_slot: what stands for no slot.

    Raises:
        ValueError: a number below 1, an unknown pool, topk above 1 without a reservation.

    Source: docs/spec.md, draft steps.
    """

    def __init__(
        self,
        tables: RequestTables,
        num_rows: int,
        num_steps: int,
        rope_cos: Tensor,
        rope_sin: Tensor,
        *,
        topk: int = 1,
        pad_to: int = 1,
        num_entries: int = 0,
        pool: str = "swa",
        reserved: bool | None = None,
        dummy_slot: int = 0,
    ) -> None:
        sizes = {"num_rows": num_rows, "num_steps": num_steps, "topk": topk, "pad_to": pad_to}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"MultiStepDraft: {name} is {size}, expected at least 1")
        if pool not in ("swa", "full"):
            raise ValueError(f"MultiStepDraft: pool is {pool!r}, expected one of swa, full")
        reserved = topk > 1 if reserved is None else reserved
        if topk > 1 and not reserved:
            raise ValueError(f"MultiStepDraft: topk is {topk}, expected 1 without a reservation")
        self._tables, self._pool, self._rope = tables, pool, (rope_cos, rope_sin)
        self._dummy_slot = dummy_slot
        self._num_rows, self._num_steps, self._topk, self._pad_to = num_rows, num_steps, topk, pad_to
        self.inputs = StaticInputs(tables, num_rows, tables.max_context_len, 0, ragged=False)
        self.reservation: Tensor | None = None
        if reserved:
            zeros = torch.zeros(num_rows * topk * num_steps, dtype=torch.int32, device="cpu")
            self.reservation = zeros.to(tables.device, copy=True)
        entries = max(num_entries, self._padded(num_rows))
        self.buffers = DraftSteps.empty(
            num_steps, entries, rope_cos.shape[1], dtype=rope_cos.dtype, device=tables.device
        )
        self._no_slots = torch.empty(0, dtype=torch.int32, device=tables.device)
        self._views: dict[int, tuple[DraftStep, ...]] = {}
        self.steps = self._first_entries(entries)

    def prepare(
        self,
        seq_lens: Tensor | None = None,
        *,
        req_pool_indices: Tensor | None = None,
        reservation: Tensor | None = None,
    ) -> tuple[DraftStep, ...]:
        """Rewrites all buffers to their last entry, in one launch; allocates nothing.

        Args:
            seq_lens: ``[B]`` committed lengths of this round on the device, B up to ``num_rows``; without it the
                inputs and the reservation of this object, as in a captured graph.
            req_pool_indices: ``[B]``, with ``seq_lens`` where the tables have the slots.
            reservation: ``[B * topk * num_steps]``, with ``seq_lens`` where a reservation has them.

        Returns:
            one view a step: of B * topk entries and dummies up to a multiple of ``pad_to``, or, from the inputs of this
            object, of all entries.

        Raises:
            ValueError: as ``build_draft_steps``; a missing argument. Nothing was written.
        """
        whole = seq_lens is None
        if seq_lens is None:
            seq_lens, req_pool_indices = self.inputs.seq_lens, self.inputs.req_pool_indices
            reservation = self.reservation
        if self.reservation is not None and reservation is None:
            raise ValueError("MultiStepDraft.prepare: reservation is None, expected the slots of the drafts")
        if self.reservation is None and reservation is not None:
            raise ValueError(
                "MultiStepDraft.prepare: reservation is a tensor, expected None: the tables have the slots"
            )
        build_draft_steps(
            seq_lens,
            *self._rope,
            self._num_steps,
            topk=self._topk,
            reservation=reservation,
            tables=self._tables,
            req_pool_indices=req_pool_indices,
            pool=self._pool,
            dummy_slot=self._dummy_slot,
            out=self.buffers,
        )
        return self.steps if whole else self._first_entries(self._padded(seq_lens.shape[0]))

    def fill(self, req_pool_indices: Integers, seq_lens: Integers) -> None:
        """Sets the inputs of a captured round from the host; see ``StaticInputs.fill``. Slots of a reservation go to
        ``reservation`` by the engine's own allocation."""
        self.inputs.fill(req_pool_indices, seq_lens)

    def _padded(self, num_rows: int) -> int:
        return -(-num_rows * self._topk // self._pad_to) * self._pad_to

    def _first_entries(self, entries: int) -> tuple[DraftStep, ...]:
        """Views of the first entries of every step, made once for each number of them."""
        if entries in self._views:
            return self._views[entries]
        steps = self.buffers
        none = self._no_slots
        views = []
        for step in range(self._num_steps):
            slots = steps.slots[step, :entries]
            full, swa = (slots, none) if self._pool == "full" else (none, slots)
            views.append(
                DraftStep(
                    OutCacheLoc(full, swa, none, none, none, none),
                    steps.positions[step, :entries],
                    steps.kv_lens[step, :entries],
                    steps.cos[step, :entries],
                    steps.sin[step, :entries],
                )
            )
        self._views[entries] = tuple(views)
        return self._views[entries]
