"""Requests that start on what a running one has cached of the same tokens (docs/spec.md, shared prefixes)."""

from collections.abc import Callable, Iterable
from itertools import takewhile

from dsv4_npu_ops import KVAllocator, PoolExhausted, SharedPrefix
from dsv4_npu_ops.mtp.pools import KVPools
from dsv4_npu_ops.mtp.scheduler import Running


def common_prefix_len(source: Running, target: Running) -> int:
    """Tokens of the target's prompt that it can take over from what the source has committed.

    The MTP layer's entry of a position was made with the token behind it, which must be the same too; and the last
    token of a prompt is always computed, since its logits are wanted.
    """
    known = source.request.prompt + source.generated
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, target.prompt, strict=False)))
    return max(0, min(source.committed, same - 1))


def start_on_prefix(
    target: Running,
    running: Iterable[Running],
    allocator: KVAllocator,
    share_prefix: Callable[..., SharedPrefix],
    pools: KVPools,
) -> int:
    """Starts an admitted request on the running one that has most of its prompt; returns the tokens that it has then.

    It starts from nothing when nobody has any of it, or a pool has no page left for the copies.

    Args:
        target: has a row and nothing in it.
        running: all running requests.
        allocator: of the tables.
        share_prefix: its ``share_prefix``.
        pools: the pages are copied there.
    """
    prefixes = {source.row: common_prefix_len(source, target) for source in running if source is not target}
    starts = {row: allocator.shareable_len(row, prefix) for row, prefix in prefixes.items() if prefix}
    best = max(starts, key=starts.__getitem__, default=target.row)
    if not starts.get(best):
        return 0
    try:
        shared = share_prefix([best], [target.row], [starts[best]])
    except PoolExhausted:
        return 0
    pools.copy_pages(shared.copies)
    target.committed = shared.starts[0]
    return target.committed
