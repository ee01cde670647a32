"""Block lists of the Mooncake connectors, by their own functions, beside what is due by docs/spec.md: what a prefill
lists, what the receiver copies where, without the plug-in and with it."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.state_payloads import due_units

from dsv4_npu_ops.engines import hooks
from engines.vllm_ascend.world import WINDOW, never, ours, va

Scheduler, Worker = va.connector.MooncakeConnectorScheduler, va.connector.MooncakeConnectorWorker
HybridScheduler = va.hybrid_connector.MooncakeConnectorScheduler

GROUPS = {
    # slots of a block, tokens of a slot, window; the windows of states are vLLM's
    "c4": (128, 4, 0),
    "c128": (128, 128, 0),
    "swa": (128, 1, WINDOW),
    "c4_state": (8, 1, 8),
    "c128_state": (32, 1, 128),
}
WINDOWS = [group for group, (_, _, window) in GROUPS.items() if window]


def whole(length, extra, freed=False):
    """Pages of a request by group, ids are pages from 1 on: of all tokens, or without those that vLLM has freed."""
    lists = []
    for size, ratio, window in GROUPS.values():
        pages = list(range(1, -(-length // (size * ratio)) + extra + 1))
        gone = max(0, length - window + 1) // size if freed and window else 0
        lists.append([0] * gone + pages[gone:])
    return lists


def sent(length, extra=1, freed=False):
    """Pages by group that a prefill lists for a prompt."""
    infos = [
        SimpleNamespace(tokens_per_block=size * ratio, blocks_per_window=-(-window // size) + 1 if window else 0,
                        is_state_group=False)
        for size, ratio, window in GROUPS.values()
    ]  # fmt: skip
    scheduler = SimpleNamespace(group_transfer_info=infos, pcp_size=1, dcp_size=1)
    lists = Scheduler._get_swa_transfer_block_ids(
        scheduler, Scheduler._get_transfer_block_ids(scheduler, whole(length, extra, freed), length)
    )
    return dict(zip(GROUPS, lists, strict=True))


def due(group, length, prefix=0):
    size, _, _ = GROUPS[group]
    return sorted({unit // size + 1 for unit in due_units(group, length, prefix, WINDOW)})


@given(length=st.integers(1, 3000), extra=st.integers(0, 2), freed=st.booleans())
def test_a_prefill_lists_all_that_is_due(length, extra, freed):
    for group, pages in sent(length, extra, freed).items():
        assert set(due(group, length)) <= set(pages), group
        size, _, window = GROUPS[group]
        assert len(pages) <= (-(-window // size) + 1 if window else len(due(group, length)) + 1)


def kept(group, length, cached=0):
    """Pages that the receiver has to fill: all, or of a window those from that of token ``length - window + 1`` on."""
    size, ratio, window = GROUPS[group]
    if not window:
        return list(range(cached // ratio // size + 1, -(-(length // ratio) // size) + 1))
    return list(range(max(cached, length - window + 1, 0) // size + 1, -(-length // size) + 1))


def pulled(group, remote, local, cached, model=True, one_kind=False, scale=1, **of_prefill):
    """Pairs (page of the prefill, page of the decode instance) that the receiver copies."""
    size, ratio, window = GROUPS[group]
    config = SimpleNamespace(model_type="deepseek_v4" if model else "gpt_oss")
    worker = SimpleNamespace(
        vllm_config=SimpleNamespace(model_config=SimpleNamespace(hf_config=config)),
        block_size=size,
        block_size_scale=[[scale]],
        _get_kv_cache_group_id=Worker._get_kv_cache_group_id,
        _expand_block_ids=Worker._expand_block_ids,
        _group_compress_ratio=Worker._group_compress_ratio,
    )
    lists = dict(local_block_ids=[local], remote_block_ids=[remote], num_computed_tokens=cached)
    meta = SimpleNamespace(**lists, **{"remote_block_size": size} | of_prefill)
    layer = {"block_size": size, "compress_ratio": ratio, "sliding_window": window or None}
    spec = {"kv_cache_spec_type": group, "kv_cache_spec": layer if one_kind else {"layer": layer}}
    here, there = Worker._get_kernel_block_ids(worker, [0], meta, 0, spec)
    return list(zip(there, here, strict=True))


@given(length=st.integers(1, 3000), cached=st.integers(0, 2999))
def test_both_ends_meet_with_the_plug_in(length, cached):
    """Every page of the receiver is filled, by that of the same tokens; what is due and not among them it has."""
    cached = min(cached, length - 1) // 512 * 512
    lists = sent(length, freed=True)
    for group in GROUPS:
        local = kept(group, length, cached)
        assert set(due(group, length, cached)) <= set(local) | set(range(1, cached // GROUPS[group][0] + 1)), group
        with ours(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(hooks, "say_once", never)
            pairs = pulled(group, lists[group], local, cached)
        assert pairs == [(page, page) for page in local], group


@pytest.mark.parametrize("one_kind", [False, True])
@pytest.mark.parametrize("remote_block_size", [128, 0, None])
def test_blocks_of_several_pages_of_the_kernels_meet(remote_block_size, one_kind):
    """A block of the scheduler may be two of the cache's tensors; the receiver keeps two of the prefill's three."""
    with ours():
        pairs = pulled("swa", [4, 5, 6], [25, 26], 0, True, one_kind, 2, remote_block_size=remote_block_size)
    assert pairs == [(10, 50), (11, 51), (12, 52), (13, 53)]


def test_empty_lists_have_no_pairs():
    with ours():
        assert pulled("swa", [], [3], 0) == pulled("swa", [3], [], 0) == []


def test_other_models_and_other_block_sizes_are_the_engines_own(monkeypatch):
    said = []
    monkeypatch.setattr(hooks, "say_once", said.append)
    expected = pulled("swa", [4, 5, 6], [25, 26], 0)
    with ours():
        assert pulled("swa", [4, 5, 6], [25, 26], 0, model=False) == expected == [(4, 25), (5, 26)]
        assert not said
        with_larger = pulled("swa", [4, 5, 6], [25, 26], 0, remote_block_size=256)
    assert with_larger == pulled("swa", [4, 5, 6], [25, 26], 0, remote_block_size=256)
    assert said == [
        "MooncakeConnectorWorker._get_kernel_block_ids is the engine's own for calls like this: "
        "the prefill has blocks of 256 slots, here they have 128"
    ]


@given(length=st.integers(130, 3000))
def test_without_it_windows_meet_unless_the_prompt_ends_at_a_page_or_one_token_before(length):
    """Lists are paired from the front, and then the prefill's begins a page earlier."""
    for group in WINDOWS:
        pairs = pulled(group, sent(length)[group], kept(group, length), 0)
        size = GROUPS[group][0]
        assert all(mine == theirs for theirs, mine in pairs) is (length % size not in (0, size - 1))


@pytest.mark.parametrize("group", WINDOWS)
def test_without_it_nothing_of_a_window_behind_a_cached_prefix_is_pulled(group):
    """The pages of the prefix are counted off a list that begins at the window."""
    length, cached = 1100, 1024
    local = kept(group, length, cached)
    assert local and pulled(group, sent(length)[group], local, cached) == []


@given(length=st.integers(1, 3000), extra=st.integers(0, 2))
def test_lists_of_the_hybrid_connector_end_at_the_same_page_as_the_receivers(length, extra):
    """Its receiver pairs lists from their ends, so that both meet."""
    scheduler = SimpleNamespace(
        use_compress=True,
        use_hybrid=True,
        num_swa_blocks=[-(-window // size) + 1 if window else 0 for size, _, window in GROUPS.values()],
        group_compress_ratio=[ratio for _, ratio, _ in GROUPS.values()],
        group_block_size=[size for size, _, _ in GROUPS.values()],
    )
    lists = HybridScheduler.get_sw_clipped_blocks(
        scheduler, HybridScheduler._compute_transfer_block_ids(scheduler, whole(length, extra, freed=True), length)
    )
    for group, pages in zip(GROUPS, lists, strict=True):
        local = kept(group, length)
        assert pages[len(pages) - len(local) :] == local, group
        assert set(due(group, length)) <= set(local), group
