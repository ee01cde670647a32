"""The pages that requests need at most, against an allocator that is driven through every chunk and every verify."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsv4_npu_ops import KVAllocator, KVLayout, PoolExhausted, RequestTables, peak_pages
from dsv4_npu_ops.layout import POOLS


class Cache:
    """Rows that do the same step at the same time, in pools of a given size, and the fewest pages that were free."""

    def __init__(self, layout: KVLayout) -> None:
        self.alloc = KVAllocator(layout, RequestTables(layout))
        self.pools, self.rows = layout.num_pages, list(range(layout.max_requests))
        self.fewest = dict(layout.num_pages)

    def call(self, method: str, *lengths: int) -> None:
        getattr(self.alloc, method)(self.rows, *([length] * len(self.rows) for length in lengths))
        for pool in self.pools:
            self.fewest[pool] = min(self.fewest[pool], self.alloc.available_pages(pool))

    def every_chunk(self, prompt: int, chunk: int) -> None:
        """From every prefix each chunk that an engine may choose there, and then one token."""
        for begin in range(prompt):
            for end in range(begin + 1, min(prompt, begin + chunk) + 1):
                backup = self.alloc.backup_state()
                self.call("alloc_extend", begin, end)
                self.alloc.restore_state(backup)
            self.call("alloc_extend", begin, begin + 1)
            self.call("evict", begin + 1)
        self.alloc.free(self.rows)

    def every_verify(self, context: int, n: int, in_flight: int) -> None:
        """One accepted token a step, which passes every length; the host reads it ``in_flight - 1`` steps late."""
        self.call("alloc_extend", 0, 1)
        self.call("evict", 1)
        reserved = 1
        for known in range(1, context):
            while reserved < min(known + n * in_flight, context):
                # Of all tokens in flight accepted: the upper bound that the host reserves from.
                end = min(reserved + n, known + n * in_flight, context)
                self.call("reserve_extend", min(reserved, end), end)
                reserved = end
            self.call("evict", known + 1)
        self.alloc.free(self.rows)


def layout_of(rows: int, context: int, window: int, page_size: dict[str, int], num_pages: dict[str, int]) -> KVLayout:
    return KVLayout(page_size, window, rows, context, num_pages)


@st.composite
def workloads(draw: st.DrawFn) -> dict:
    context = draw(st.one_of(st.integers(1, 40), st.integers(100, 280)))
    return {
        "context": context,
        "rows": draw(st.integers(1, 3)),
        "page_size": {pool: 2 ** draw(st.integers(0, 7)) for pool in POOLS if draw(st.integers(0, 9))} or {"swa": 4},
        "window": draw(st.sampled_from([1, 2, 7, 32, 128])),
        "prompt": draw(st.integers(1, context)),
        "chunk": draw(st.one_of(st.integers(1, 9), st.integers(1, 60))),
        "n": draw(st.integers(1, 9)),
        "in_flight": draw(st.integers(1, 3)),
    }


@given(workload=workloads(), lacking=st.sampled_from(POOLS))
@example(
    workload={
        "context": 300,
        "rows": 1,
        "page_size": dict.fromkeys(POOLS, 16),
        "window": 128,
        "prompt": 290,
        "chunk": 140,
        "n": 4,
        "in_flight": 2,
    },
    lacking="c128_state",
)
# A window of the current token alone: after its prefill a request keeps no page.
@example(
    workload={
        "context": 2,
        "rows": 1,
        "page_size": {"swa": 1},
        "window": 1,
        "prompt": 1,
        "chunk": 1,
        "n": 1,
        "in_flight": 1,
    },
    lacking="swa",
)
@settings(max_examples=25)
def test_never_exhausted_at_the_answer_and_exhausted_one_page_below(workload: dict, lacking: str) -> None:
    context, rows, n, in_flight = (workload[name] for name in ("context", "rows", "n", "in_flight"))
    window, sizes, prompt, chunk = (workload[name] for name in ("window", "page_size", "prompt", "chunk"))
    pages = peak_pages(
        context,
        rows,
        page_size=sizes,
        sliding_window=window,
        prompt_len=prompt,
        chunk_size=chunk,
        num_draft_tokens=n,
        steps_in_flight=in_flight,
    )
    assert list(pages) == [pool for pool in POOLS if pool in sizes]

    def serve(num_pages: dict[str, int]) -> Cache:
        cache = Cache(layout_of(rows, context, window, sizes, num_pages))
        cache.every_chunk(prompt, chunk)
        cache.every_verify(context, n, in_flight)
        return cache

    assert set(serve(pages).fewest.values()) == {0}
    if pages.get(lacking):
        with pytest.raises(PoolExhausted, match=f"pool {lacking} lacks"):
            serve(pages | {lacking: pages[lacking] - 1})


def test_known_numbers() -> None:
    """A context of 8192 with the engines' page and window: of the windows, a few pages a request."""
    assert peak_pages(8192, 64, chunk_size=2048, num_draft_tokens=4) == {
        "full": 64 * 64,
        "swa": 64 * 18,
        "c4": 64 * 16,
        "c128": 64,
        "c4_state": 64 * 4,
        "c128_state": 64 * 2,
    }
    assert peak_pages(8192, page_size={"swa": 128})["swa"] == 64  # a whole prompt at once


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context_len": 0}, "context_len is 0, expected an integer of at least 1"),
        ({"num_requests": 1.5}, "num_requests is 1.5, expected an integer of at least 1"),
        ({"chunk_size": -1}, "chunk_size is -1, expected an integer of at least 1"),
        ({"page_size": 24}, r"page_size\['full'\] is 24, expected a power of two"),
        ({"page_size": {"kv": 16}}, "page_size names pool 'kv', expected one of full, swa, c4"),
    ],
)
def test_errors(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"peak_pages: {message}"):
        peak_pages(**{"context_len": 100, **arguments})
