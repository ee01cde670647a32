"""One bucket of a graph runner: static inputs and outputs of verify and decode steps (docs/spec.md, graphs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from dsv4_npu_ops.cache.allocator import Integers
from dsv4_npu_ops.graph.static_inputs import StaticInputs
from dsv4_npu_ops.layout import CompressMetadata, RequestTables, StepRows, VerifyStep
from dsv4_npu_ops.layout.verify_step import RopeTables
from dsv4_npu_ops.ops.verify_step import bind_verify_step


@dataclass(frozen=True)
class BucketShape:
    """What a graph is captured for: R rows, of exactly ``width`` tokens each, or with ``ragged`` of at most so many.

    A decode step is a verify step of width 1.

    Raises:
        ValueError: a number below 1.
    """

    num_rows: int
    width: int
    ragged: bool = False

    def __post_init__(self) -> None:
        if self.num_rows < 1 or self.width < 1:
            raise ValueError(
                f"BucketShape: num_rows and width are {self.num_rows} and {self.width}, expected at least 1"
            )

    @property
    def num_tokens(self) -> int:
        """Entries of the token tensor."""
        return self.num_rows * self.width

    def fits(self, num_rows: int, width: int, *, ragged: bool = False) -> bool:
        """Whether a batch can replay a graph of this shape.

        A width is a launch argument, frozen at capture: without ``ragged`` here it must be the very same.

        Args:
            num_rows: rows of the batch.
            width: tokens of every row, or the most of one when the batch is ragged.
            ragged: rows of the batch have widths of their own.
        """
        fitting = width <= self.width if self.ragged else width == self.width and not ragged
        return num_rows <= self.num_rows and fitting


class VerifyBucket:
    """Everything that a captured verify (or, with width 1, decode) step reads besides weights and caches.

    Inputs and outputs are allocated once and keep their addresses. ``fill`` sets the inputs from the host, outside the
    graph; ``refresh`` rewrites every output to its last entry from the inputs, inside or outside the graph, by one
    launch. Rows beyond the batch are padding: slots 0, positions 0, lengths 1.

    Attributes:
        shape: what the bucket is for.
        inputs: what changes between replays.
        step: slots, metadata and RoPE rows of the completed groups. Capacities as in docs/spec.md, a step.
        token_rope: by RoPE base, cos and sin ``[num_tokens, D]`` at ``step.metadata.positions``; those of ``step``.

    Args:
        tables: request tables, read only.
        shape: rows and width.
        rope_cos, rope_sin: float32 ``[max_pos, D]`` tables of the compressed layers' base.
        token_rope: tables of the bases whose rows the tokens need: "main", of ratio 0, and "compress", of the
            compressed layers. They may have another dtype than ``rope_cos``.
        max_seq_len: raw tokens that the page tables cover; default the tables' ``max_context_len``.
        page_tables: metadata of a bucket with at least as many rows, whose page tables are shared.

    Raises:
        ValueError: shared page tables that do not fit; another base.

    Source: docs/spec.md, graphs.
    """

    def __init__(
        self,
        tables: RequestTables,
        shape: BucketShape,
        rope_cos: Tensor,
        rope_sin: Tensor,
        *,
        token_rope: Mapping[str, RopeTables] | None = None,
        max_seq_len: int | None = None,
        page_tables: CompressMetadata | None = None,
    ) -> None:
        self.shape = shape
        max_seq_len = tables.max_context_len if max_seq_len is None else max_seq_len
        longest = min(max_seq_len, tables.max_context_len)
        self.inputs = StaticInputs(tables, shape.num_rows, longest, shape.width, ragged=shape.ragged)
        bases = dict(token_rope or {})
        if not bases.keys() <= {"main", "compress"}:
            raise ValueError(f"VerifyBucket: token_rope has {', '.join(bases)}, expected main or compress")
        token_tables = bases.get("main"), bases.get("compress")
        sizes = shape.num_rows, shape.num_tokens, rope_cos.shape[1], max_seq_len, page_tables
        self.step = VerifyStep.empty(tables, *sizes, main_rope=token_tables[0], compress_rope=token_tables[1])
        self.token_rope: dict[str, RopeTables] = {
            base: (getattr(self.step, f"{base}_cos"), getattr(self.step, f"{base}_sin")) for base in bases
        }
        widths = shape.width if self.inputs.widths is None else self.inputs.widths
        rows = StepRows.verify(self.inputs.seq_lens, widths)
        requests, rope = self.inputs.req_pool_indices, (rope_cos, rope_sin)
        self._refresh = bind_verify_step(tables, requests, rows, rope, self.step, *token_tables)

    def fill(self, req_pool_indices: Integers, seq_lens: Integers, widths: Integers | None = None) -> None:
        """Sets the inputs of the next replay; see ``StaticInputs.fill``."""
        self.inputs.fill(req_pool_indices, seq_lens, widths)

    def refresh(self) -> VerifyStep:
        """Rewrites every output from the inputs; allocates nothing, copies nothing, reads nothing back.

        Returns:
            ``self.step``.

        Raises:
            ValueError, IndexError: on a CPU, as ``build_verify_step``. Nothing was written.
        """
        self._refresh()
        return self.step
