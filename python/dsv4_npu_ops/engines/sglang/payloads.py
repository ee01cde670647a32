"""What SGLang sends of a request from a prefill instance to a decode instance, beyond what all its models send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv4_npu_ops.engines.hooks import Hook

_TOKENS_PER_GROUP = 128


def dsv4_state_payloads(
    original: Callable[..., Any],
    req_to_token_pool: Any,
    req_pool_idx: int,
    seq_len: int,
    page_size: int,
    *,
    prefix_len: int = 0,
) -> Any:
    """``dsv4_state_payloads``, whose list of c128 pages is complete or an error.

    SGLang's own leaves out what the sidecar does not hold. The two ends pair their lists entry by entry, so that each
    page behind one left out would go to the wrong place. The other lists are arithmetic on the host, and right.
    """
    from sglang.srt.disaggregation.ascend.conn import AscendStateType

    payloads = original(req_to_token_pool, req_pool_idx, seq_len, page_size, prefix_len=prefix_len)
    end = max(0, int(seq_len))
    start = max(0, min(int(prefix_len), end))
    payloads[AscendStateType.DSV4_C128] = lambda: _c128_pages(req_to_token_pool, int(req_pool_idx), start, end)
    return payloads


def _c128_pages(request_pool: Any, row: int, prefix_len: int, seq_len: int) -> Any:
    """numpy int32: the pages of the groups from the prefix on, the first one whole. One read of the device."""
    import numpy as np

    groups = request_pool.c128_page_size
    first = prefix_len // _TOKENS_PER_GROUP // groups
    columns = -(-(seq_len // _TOKENS_PER_GROUP) // groups) - first
    if columns <= 0:
        return np.empty((0,), dtype=np.int32)
    pages = request_pool.req_to_c128_sidecar[row, first : first + columns].tolist()
    if len(pages) < columns or min(pages) <= 0:
        raise ValueError(
            f"dsv4_state_payloads: request row {row} has c128 pages {pages} from column {first} on, expected "
            f"{columns} from 1 up, for {seq_len} tokens"
        )
    return np.array(pages, dtype=np.int32)


HOOKS = (
    Hook(
        "sglang.srt.hardware_backend.npu.dsv4.dsv4_common_hooks.dsv4_state_payloads",
        dsv4_state_payloads,
        "0.5.18",
        "0.5.23",
    ),
)
