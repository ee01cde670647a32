"""The only values that change between replays of a graph (docs/spec.md, graphs)."""

import torch
from torch import Tensor

from dsv4_npu_ops.cache import HostStaging
from dsv4_npu_ops.cache.host_integers import Integers, host_integers
from dsv4_npu_ops.graph_capture import is_capturing
from dsv4_npu_ops.layout import KVLayout


class StaticInputs:
    """Request indices, lengths and, in ragged steps, widths of R rows, at addresses that a graph can keep.

    They are rows of one int32 device tensor, so that one copy from the host fills them all. An engine whose lengths are
    on the device already lets its own ops write into them instead. All rows start as padding.

    Attributes:
        req_pool_indices, seq_lens: int32 ``[R]``.
        widths: int32 ``[R]``, or None.

    Args:
        layout: names the device and the requests.
        num_rows: R.
        max_final_len: raw tokens that a row may have after the step.
        width: new tokens of every row (0: none are counted), or with ``ragged`` the most of one row.
        ragged: rows have widths of their own.

    Source: docs/spec.md, graphs.
    """

    def __init__(self, layout: KVLayout, num_rows: int, max_final_len: int, width: int, *, ragged: bool) -> None:
        self._layout, self._max_final_len, self._width = layout, max_final_len, width
        zeros = torch.zeros(3 if ragged else 2, num_rows, dtype=torch.int32, device="cpu")
        self._values = zeros.to(layout.device, copy=True)
        self._staging = HostStaging(layout.device)
        self.req_pool_indices, self.seq_lens = self._values[0], self._values[1]
        self.widths: Tensor | None = self._values[2] if ragged else None

    def fill(self, req_pool_indices: Integers, seq_lens: Integers, widths: Integers | None = None) -> None:
        """Sets the first rows and makes the others padding, by one small copy to the device; not inside a capture.

        Args:
            req_pool_indices: rows of the request tables, as a list or a 1-D integer tensor on the host.
            seq_lens: committed lengths L, likewise; 0 is padding.
            widths: tokens of each row, likewise; needed in a ragged step, and only there.

        Raises:
            ValueError: more rows than there are, arguments of different lengths, a negative or too large value, an
                unknown request. The inputs keep what they held.
            RuntimeError: a graph is being captured, which would keep these values for ever.
        """
        if is_capturing():
            raise RuntimeError("fill: a graph is being captured, expected values to be set between replays")
        if (widths is None) != (self.widths is None):
            wanted = "None, since every row has the same width" if self.widths is None else "one a row"
            raise ValueError(f"fill: widths is {widths!r}, expected {wanted}")
        rows = {
            "req_pool_indices": host_integers("fill", "req_pool_indices", req_pool_indices),
            "seq_lens": host_integers("fill", "seq_lens", seq_lens),
        }
        if widths is not None:
            rows["widths"] = host_integers("fill", "widths", widths)
        self._check(rows)
        padding = [0] * (self._values.shape[1] - len(rows["seq_lens"]))
        host = torch.tensor([values + padding for values in rows.values()], dtype=torch.int32, device="cpu")
        self._staging.copy_into(self._values, host)

    def _check(self, rows: dict[str, list[int]]) -> None:
        requests, lengths = rows["req_pool_indices"], rows["seq_lens"]
        count, capacity = len(lengths), self._values.shape[1]
        if count > capacity:
            raise ValueError(f"fill: seq_lens has {count} entries, expected at most {capacity}")
        for name, values in rows.items():
            if len(values) != count:
                raise ValueError(f"fill: {name} has {len(values)} entries, expected {count} like seq_lens")
        widths = rows.get("widths", [self._width])
        if count and (
            min(widths) < 0
            or max(widths) > self._width
            or min(lengths) < 0
            or max(lengths) + max(widths) > self._max_final_len
            or min(requests) < 0
            or max(requests) >= self._layout.max_requests
        ):
            # Only now row by row: some of them may be allowed, or padding.
            for row in range(count):
                self._check_row(row, rows)

    def _check_row(self, row: int, rows: dict[str, list[int]]) -> None:
        request, length = rows["req_pool_indices"][row], rows["seq_lens"][row]
        width = rows["widths"][row] if "widths" in rows else self._width
        if not 0 <= width <= self._width:
            raise ValueError(f"fill: widths[{row}] is {width}, expected 0 to {self._width}")
        if length < 0:
            raise ValueError(f"fill: seq_lens[{row}] is {length}, expected at least 0")
        if length == 0 or ("widths" in rows and width == 0):
            # Nothing is read for a padding row, but its values must fit into int32.
            rows["req_pool_indices"][row] = rows["seq_lens"][row] = 0
        elif length + width > self._max_final_len:
            raise ValueError(
                f"fill: seq_lens[{row}] is {length} before {width} new tokens, expected at most "
                f"{self._max_final_len} with them"
            )
        elif not 0 <= request < self._layout.max_requests:
            raise ValueError(
                f"fill: req_pool_indices[{row}] is {request}, expected 0 <= index < {self._layout.max_requests}"
            )
