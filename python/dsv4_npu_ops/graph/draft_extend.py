"""Draft extend after acceptance, in static buffers (docs/spec.md, lengths; draft steps)."""

import torch
from torch import Tensor

from dsv4_npu_ops.cache.allocator import Integers
from dsv4_npu_ops.graph.static_inputs import StaticInputs
from dsv4_npu_ops.layout import CompressMetadata, RequestTables, VerifyStep
from dsv4_npu_ops.ops import build_verify_step


class DraftExtend:
    """The pass in which the MTP layer catches up with the target: the verify form, as wide as what was accepted.

    Row i brings ``accepted_lens[i]`` tokens at positions ``seq_lens[i] ..``, where ``seq_lens`` are the committed
    lengths before acceptance. The MTP layer only has a sliding window, so that groups, their slots and compressor
    states are left out; the positions of completed groups in the metadata mean nothing here.

    Buffers are allocated once. ``refresh`` rewrites all of them, inside or outside a capture, by one launch.

    Attributes:
        inputs: request indices, committed lengths before acceptance, and accepted lengths (``inputs.widths``), which
            an engine that knows them only on the device writes there by its own ops.
        metadata: compress metadata of at most ``num_rows * max_width`` tokens; only swa has a page table.
        swa_slots: int32 ``[num_rows * max_width]``, 0 behind the last token.
        cos, sin: RoPE rows at ``metadata.positions``.

    Args:
        tables: request tables, read only.
        num_rows: R.
        max_width: the most tokens that a row can have accepted.
        rope_cos, rope_sin: ``[max_pos, D]`` tables of the MTP layer's base.
        max_seq_len: raw tokens that the page table covers; default the layout's ``max_context_len``.

    Raises:
        ValueError: a layout without swa.

    Source: docs/spec.md, draft steps.
    """

    def __init__(
        self,
        tables: RequestTables,
        num_rows: int,
        max_width: int,
        rope_cos: Tensor,
        rope_sin: Tensor,
        *,
        max_seq_len: int | None = None,
    ) -> None:
        self._tables = tables.select("swa")
        self._max_seq_len = tables.max_context_len if max_seq_len is None else max_seq_len
        longest = min(self._max_seq_len, tables.max_context_len)
        self.inputs = StaticInputs(tables, num_rows, longest, max_width, ragged=True)
        num_tokens = num_rows * max_width
        self._rope = rope_cos, rope_sin
        self._step = VerifyStep.empty(self._tables, num_rows, num_tokens, 0, self._max_seq_len, main_rope=self._rope)
        # Rows without elements: the groups' rotations are not wanted.
        self._no_rope = rope_cos.new_empty((tables.max_context_len, 0), dtype=torch.float32)

    @property
    def metadata(self) -> CompressMetadata:
        """See the class."""
        return self._step.metadata

    @property
    def cos(self) -> Tensor:
        """See the class."""
        assert self._step.main_cos is not None
        return self._step.main_cos

    @property
    def sin(self) -> Tensor:
        """See the class."""
        assert self._step.main_sin is not None
        return self._step.main_sin

    @property
    def swa_slots(self) -> Tensor:
        """See the class."""
        return self._step.out_cache_loc.out_swa_loc

    def fill(self, req_pool_indices: Integers, seq_lens: Integers, accepted_lens: Integers) -> None:
        """Sets the inputs from the host; see ``StaticInputs.fill``."""
        self.inputs.fill(req_pool_indices, seq_lens, accepted_lens)

    def refresh(self) -> None:
        """Rewrites every output from the inputs; allocates nothing, copies nothing, reads nothing back.

        Raises:
            ValueError: on a CPU, as ``build_verify_step``. Nothing was written.
        """
        assert self.inputs.widths is not None
        build_verify_step(
            self._tables,
            self.inputs.req_pool_indices,
            self.inputs.seq_lens,
            self.inputs.widths,
            self._no_rope,
            self._no_rope,
            max_seq_len=self._max_seq_len,
            main_rope=self._rope,
            out=self._step,
        )
