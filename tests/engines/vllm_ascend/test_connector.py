"""Block lists of the Mooncake connector, by its own functions, beside what is due by docs/spec.md. Nothing is replaced
there: this says what the lists hold, and where both ends do not agree (docs/vllm_ascend.md)."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.state_payloads import due_units

from engines.vllm_ascend.world import WINDOW, va

Scheduler, Worker = va.connector.MooncakeConnectorScheduler, va.connector.MooncakeConnectorWorker

GROUPS = {
    # slots of a block, tokens of a slot, window; the windows of states are vLLM's
    "c4": (128, 4, 0),
    "c128": (128, 128, 0),
    "swa": (128, 1, WINDOW),
    "c4_state": (8, 1, 8),
    "c128_state": (32, 1, 128),
}


def sent(length, extra=1):
    """Pages by group that a prefill lists for a prompt, of a request that has kept all; ids are pages from 1 on."""
    infos = [
        SimpleNamespace(tokens_per_block=size * ratio, blocks_per_window=-(-window // size) + 1 if window else 0,
                        is_state_group=False)
        for size, ratio, window in GROUPS.values()
    ]  # fmt: skip
    scheduler = SimpleNamespace(group_transfer_info=infos, pcp_size=1, dcp_size=1)
    whole = [list(range(1, -(-length // info.tokens_per_block) + extra + 1)) for info in infos]
    lists = Scheduler._get_swa_transfer_block_ids(
        scheduler, Scheduler._get_transfer_block_ids(scheduler, whole, length)
    )
    return dict(zip(GROUPS, lists, strict=True))


def due(group, length):
    size, _, _ = GROUPS[group]
    return sorted({unit // size + 1 for unit in due_units(group, length, 0, WINDOW)})


@given(length=st.integers(1, 3000), extra=st.integers(0, 2))
def test_a_prefill_lists_all_that_is_due(length, extra):
    for group, pages in sent(length, extra).items():
        assert set(due(group, length)) <= set(pages), group
        size, _, window = GROUPS[group]
        assert len(pages) <= (-(-window // size) + 1 if window else len(due(group, length)) + 1)


def pulled(group, remote, local, cached):
    """Pairs (page of the prefill, page of the decode instance) that the receiver copies."""
    size, ratio, _ = GROUPS[group]
    worker = SimpleNamespace(
        block_size=size,
        block_size_scale=[[1]],
        _get_kv_cache_group_id=Worker._get_kv_cache_group_id,
        _expand_block_ids=Worker._expand_block_ids,
        _group_compress_ratio=Worker._group_compress_ratio,
    )
    meta = SimpleNamespace(
        remote_block_size=size, local_block_ids=[local], remote_block_ids=[remote], num_computed_tokens=cached
    )
    spec = {"kv_cache_spec_type": group, "kv_cache_spec": {"layer": {"compress_ratio": ratio}}}
    ours, theirs = Worker._get_kernel_block_ids(worker, [0], meta, 0, spec)
    return list(zip(theirs, ours, strict=True))


@given(length=st.integers(1, 3000))
def test_pages_of_compressed_entries_meet(length):
    for group in ("c4", "c128"):
        pages = sent(length)[group]
        assert pulled(group, pages, pages, 0) == [(page, page) for page in pages]


def kept(group, length):
    """Pages that vLLM keeps of a window: from that of token ``length - window + 1`` on."""
    size, _, window = GROUPS[group]
    return list(range(max(0, length - window + 1) // size + 1, -(-length // size) + 1))


@given(length=st.integers(130, 3000))
def test_windows_meet_unless_the_prompt_ends_at_a_page_or_one_token_before(length):
    """Lists are paired from the front, and then the prefill's begins a page earlier."""
    for group in ("swa", "c4_state", "c128_state"):
        pairs = pulled(group, sent(length)[group], kept(group, length), 0)
        size = GROUPS[group][0]
        assert all(mine == theirs for theirs, mine in pairs) is (length % size not in (0, size - 1))


@pytest.mark.parametrize("group", ["swa", "c4_state", "c128_state"])
def test_of_a_window_behind_a_cached_prefix_nothing_is_pulled(group):
    """The pages of the prefix are counted off a list that begins at the window."""
    length, cached = 1100, 1024
    local = [page for page in kept(group, length) if (page - 1) * GROUPS[group][0] >= cached]
    assert local and pulled(group, sent(length)[group], local, cached) == []
