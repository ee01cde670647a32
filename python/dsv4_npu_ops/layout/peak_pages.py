"""How many pages requests can own at once: what a layout's pools must hold (docs/capacity.md)."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import index

from dsv4_npu_ops.layout.kv_layout import POOLS, RAW_TOKENS_PER_SLOT

_STATES = {"c4_state": (4, 1), "c128_state": (128, 0)}
"""Ratio of a state pool, and how many groups before the open one its compressor still reads."""


def peak_pages(
    context_len: int,
    num_requests: int = 1,
    *,
    page_size: int | Mapping[str, int] = 128,
    sliding_window: int = 128,
    prompt_len: int | None = None,
    chunk_size: int | None = None,
    num_draft_tokens: int = 1,
    steps_in_flight: int = 1,
) -> dict[str, int]:
    """The most pages of each pool that requests own at once, however their prompts are cut and whatever is accepted.

    full, c4 and c128 grow with the context. The other pools keep a window and what a step brings, as long as requests
    are evicted to their committed lengths after every step. With so many pages no call raises ``PoolExhausted``; with
    one page less there are chunks and accepted lengths for which one does. For requests of several kinds add up the
    results.

    Args:
        context_len: longest request in raw tokens, drafts included, as in ``KVLayout.max_context_len``.
        num_requests: requests that run at once, all of the same kind.
        page_size: slots in a page, as in ``KVLayout``; a mapping says which pools there are.
        sliding_window: tokens that the sliding-window layers attend to, the current one included.
        prompt_len: most tokens that are prefilled; default ``context_len``, which a retracted request may come to.
        chunk_size: most tokens of a prefill step; default the whole prompt.
        num_draft_tokens: n, tokens of a verify; 1 for plain decoding.
        steps_in_flight: verifies that may be launched before the results of the first of them are read.

    Returns:
        dict: pages by pool, as ``KVLayout.num_pages`` takes them.

    Raises:
        ValueError: an argument that is no integer or below 1, a page size that is no power of two, an unknown pool.

    Source: docs/spec.md, windows; allocation.
    """
    numbers = {
        "context_len": context_len,
        "num_requests": num_requests,
        "sliding_window": sliding_window,
        "prompt_len": context_len if prompt_len is None else prompt_len,
        "chunk_size": context_len if chunk_size is None else chunk_size,
        "num_draft_tokens": num_draft_tokens,
        "steps_in_flight": steps_in_flight,
    }
    for name, number in numbers.items():
        _check(name, number)
    prompt = min(numbers["prompt_len"], context_len)
    chunk = min(numbers["chunk_size"], prompt)
    # A verify starts from at least one token. One that would not fit into the context is shorter.
    width = min(num_draft_tokens * steps_in_flight, context_len - 1)
    sizes = page_size if isinstance(page_size, Mapping) else dict.fromkeys(POOLS, page_size)
    for pool, size in sizes.items():
        if pool not in POOLS:
            raise ValueError(f"peak_pages: page_size names pool {pool!r}, expected one of {', '.join(POOLS)}")
        _check(f"page_size[{pool!r}]", size)
        if size & (size - 1):
            raise ValueError(f"peak_pages: page_size[{pool!r}] is {size}, expected a power of two")

    def of_one(pool: str, page: int) -> int:
        if pool == "swa":
            # Before its own tokens a step reads a window less one.
            prefilled = _most_touched(sliding_window - 1 + chunk, prompt, page)
            return max(prefilled, _most_touched(sliding_window - 1 + width, context_len, page))
        if pool in _STATES:
            return _most_state_pages(*_STATES[pool], page, prompt, chunk, context_len, width)
        return -(-(context_len // RAW_TOKENS_PER_SLOT[pool]) // page)

    return {pool: num_requests * of_one(pool, sizes[pool]) for pool in POOLS if pool in sizes}


def _check(name: str, number: int) -> None:
    try:
        valid = index(number) >= 1
    except TypeError:
        valid = False
    if not valid:
        raise ValueError(f"peak_pages: {name} is {number!r}, expected an integer of at least 1")


def _pages(begin: int, end: int, page: int) -> int:
    """Pages that the units [begin, end) touch."""
    return (end - 1) // page - begin // page + 1 if begin < end else 0


def _most_touched(tokens: int, longest: int, page: int) -> int:
    """Most pages that the last ``tokens`` of a request of at most ``longest`` tokens touch.

    The longest end that is the first token of its page reaches farthest back.
    """
    end = (longest - 1) // page * page + 1
    return _pages(max(0, end - tokens), end, page)


@lru_cache(maxsize=4096)
def _most_state_pages(ratio: int, overlap: int, page: int, prompt: int, chunk: int, longest: int, width: int) -> int:
    """Most pages of a state pool that one request owns, over all chunks and verifies.

    What a request owns depends on its length by the group that is open. Within a group longer is more, and groups
    repeat with the larger of page and group: a few ends of groups near such a boundary stand for all.
    """
    period = max(ratio, page)

    def first_needed(length: int) -> int:
        return max(0, (length // ratio - overlap) * ratio)

    def ends_of_groups(most: int) -> Iterator[int]:
        """Lengths within which a group is as open as it can be, most of them from the last boundaries."""
        boundaries = {0, *(most // period * period - i * period for i in range(4))}
        groups = {boundary // ratio + i for boundary in boundaries for i in range(-overlap - 2, overlap + 3)}
        groups |= {most // ratio - i for i in range(overlap + 2)}
        yield from {min(most, group * ratio + ratio - 1) for group in groups if 0 <= group <= most // ratio}

    def prefilled(begin: int, end: int) -> int:
        """Between two chunks: what the first has left, and the end of the second."""
        kept = first_needed(end) // page * page
        if kept <= begin:
            return _pages(first_needed(begin), end, page)
        return _pages(first_needed(begin), begin, page) + _pages(kept, end, page)

    peaks = [_pages(first_needed(length), length + width, page) for length in ends_of_groups(longest - width) if length]
    for end in ends_of_groups(prompt):
        begins = [begin for begin in ends_of_groups(end - 1) if begin >= end - chunk]
        peaks += [prefilled(begin, end) for begin in (*begins, max(0, end - chunk), end - 1) if begin >= 0]
    peaks += [prefilled(begin, min(prompt, begin + chunk)) for begin in ends_of_groups(prompt - 1)]
    return max(peaks)
