"""What ops met on a device and could not raise for (docs/spec.md, errors)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4_npu_ops.graph_capture import is_capturing
from dsv4_npu_ops.npu_library import is_loaded, require_npu

# Codes and meanings as in csrc/common and the ops' index headers; tests compare them.
_POSITION = {100: "a position outside of the RoPE tables"}
_ROWS = {
    1: "a negative length",
    2: "a negative prefix length, negative number of tokens or decreasing cu_seqlens",
    3: "a length shorter than its prefix or its new tokens",
    4: "a length beyond max_context_len",
    5: "a length beyond the page tables",
    6: "a request index outside of the tables",
    7: "more tokens than the outputs hold",
    8: "more groups than the outputs hold",
    9: "more live pages than a ring has columns",
    10: "more tokens than the columns of its states or window hold",
}
_SEGMENT = {
    1: "a segment of an unknown pool",
    2: "a segment of a request outside of the tables",
}
_OPS: dict[int, tuple[str, dict[int, str]]] = {
    1: ("rope_gather", _POSITION),
    4: ("step", _ROWS | _POSITION),
    5: (
        "write_req_tables",
        {
            1: "a negative start",
            2: "an end before its start",
            3: "a request index outside of the tables",
            4: "an end beyond a table",
            5: "more slots than were given",
        },
    ),
    6: (
        "compressor_metadata",
        {
            1: "decreasing cu_seqlens",
            2: "more tokens than int32 counts",
            3: "a start_pos beyond int32",
            4: "more groups than num_rows",
            5: "a block whose slots do not fit int32",
            6: "a request index outside of the block table",
        },
    ),
    7: (
        "reserve_extend",
        _SEGMENT
        | {
            3: "a segment of units outside of the table",
            4: "a segment outside of the pool's output",
            5: "a segment of an unknown source",
            6: "a segment whose pages do not fit its source",
        },
    ),
    8: (
        "release_pages",
        _SEGMENT
        | {3: "a segment of pages outside of the table", 4: "a segment whose pages do not fit the ring of free pages"},
    ),
    9: ("draft_steps", {code: _ROWS[code] for code in (1, 4, 6, 9)}),
    10: (
        "map_full_to_swa",
        {
            1: "a segment of a request outside of the tables",
            2: "a segment of units outside of the table",
            3: "a segment of an unknown source",
            4: "a full page that is none or outside of the mapping",
        },
    ),
    11: ("c4_slots_from_full", {1: "more groups than the output holds"}),
    12: (
        "advance_step",
        {
            1: "a negative length",
            2: "a length beyond max_context_len",
            3: "tokens that are no interval of the step's, or more than its length counts",
            4: "a bad number of accepted tokens or samples",
            5: "a request index outside of the tables",
            6: "a bad number of drafts",
        },
    ),
    13: (
        "share_pages",
        {
            1: "a segment of an unknown pool",
            2: "a segment whose two requests are not different rows of the tables",
            3: "a segment of pages outside of the table",
            4: "a copy that is not one page of the pool and of the outputs",
        },
    ),
    14: (
        "extend_from_lists",
        {
            1: "a negative prefix length",
            2: "a length shorter than its prefix",
            3: "a request index outside of the table",
            4: "a length beyond the table",
            5: "a last slot that is not that of the prefix",
            6: "more tokens or groups than the outputs hold",
            7: "more new pages than a list has",
            8: "a tail that does not start at a page",
            9: "a page that is none or outside of its pool",
        },
    ),
    15: (
        "token_slots",
        {
            1: "negative or decreasing cu_seqlens",
            2: "more tokens than the outputs hold",
            3: "a length shorter than its new tokens",
            4: "a length beyond int32",
            5: "a page whose slots do not fit int32",
        },
    ),
}


@dataclass(frozen=True, slots=True)
class DeviceError:
    """The first bad value that one block of a launch met.

    ``device``: where. ``op``: name of the op. ``row``: index in the op's rows (positions, requests, or segments of the
    allocator). ``value``: the low 32 bits of the value. ``what``: what is wrong with it.
    """

    device: torch.device
    op: str
    row: int
    value: int
    what: str

    def __str__(self) -> str:
        return f"{self.op} on {self.device}: row {self.row} has {self.what} (value {self.value})"


def device_errors(device: torch.device | str | int | None = None, *, clear: bool = False) -> list[DeviceError]:
    """Bad values that ops met on an NPU: there the row counted as padding, and nobody waited to raise.

    Waits for the device and reads its error words, so ask when something looks wrong, not in every step. The words are
    sticky: an entry stays until it is cleared or a later launch's block with the same number meets a bad value.

    Args:
        device: an NPU; default all that have run an op. On a CPU bad values raise, so there is never an entry.
        clear: forget the entries that are returned.

    Returns:
        list[DeviceError]: one entry for each block that met a bad value; empty when there was none.

    Raises:
        RuntimeError: inside a graph capture; or the device is an NPU and something that it needs is missing.
        ValueError: a device that is neither an NPU nor the CPU.

    Source: docs/spec.md, errors.
    """
    if device is not None and not isinstance(device, int) and str(device).split(":")[0] != "npu":
        if torch.device(device).type != "cpu":
            raise ValueError(f"device_errors: device is {device}, expected an NPU or the CPU")
        return []
    if device is None and not is_loaded():
        return []
    require_npu(f"device_errors: device {str(device)!r}")
    if is_capturing():
        raise RuntimeError("device_errors: called inside a graph capture, expected outside: it waits for the device")
    if device is None:
        indices = list(range(torch.get_device_module("npu").device_count()))
    else:
        index = device if isinstance(device, int) else torch.device(device).index
        indices = [torch.get_device_module("npu").current_device() if index is None else index]
    return [error for index in indices for error in _read(index, clear)]


def _read(device_index: int, clear: bool) -> list[DeviceError]:
    lanes: Tensor | None = torch.ops.dsv4_npu_ops.npu_error_lanes(device_index)
    if lanes is None:
        return []
    torch.get_device_module("npu").synchronize(lanes.device)
    errors = [decode(lanes.device, *words[:4]) for words in lanes.cpu().tolist() if any(words)]
    if clear and errors:
        lanes.copy_(torch.zeros(lanes.shape, dtype=lanes.dtype, device="cpu"))
    return errors


def decode(device: torch.device, op: int, code: int, row: int, value: int) -> DeviceError:
    """One lane of error words in words."""
    name, meanings = _OPS.get(op, (f"op {op}", {}))
    return DeviceError(device, name, row, value, meanings.get(code, f"fault {code}"))
