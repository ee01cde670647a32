"""What travels from prefill to decode, beside SGLang's own lists."""

import ast
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engines.sglang.allocations import ours
from engines.sglang.world import C128_PAGE, VERSION, sgl
from engines.wheels import WHEELS

GROUP = C128_PAGE * 128
COLUMNS = 9


def pool_of(draws, rows=4):
    pages = draws.sample(range(1, 100), rows * COLUMNS)
    return SimpleNamespace(
        c128_page_size=C128_PAGE,
        req_to_c128_sidecar=torch.tensor(pages, dtype=torch.int32).reshape(rows, COLUMNS),
        get_dsv4_c4_state_ring_size=lambda: 16,
    )


def lists(payloads):
    return {str(kind): payload() for kind, payload in payloads.items()}


def function_of(path, name="get_dsv4_c4_state_indices"):
    """A function of SGLang that stands in a module which needs a transfer engine."""
    source = (WHEELS["sglang", VERSION].unpacked() / "sglang/srt" / path).read_text()
    (found,) = (node for node in ast.parse(source).body if getattr(node, "name", None) == name)
    names = {"np": np, "npt": np}
    exec("from __future__ import annotations\n" + ast.unparse(found), names)
    return names[name]


@pytest.fixture(params=[False, True])
def is_a5(request, monkeypatch):
    """Atlas A5, where states have lists of their own."""
    if request.param:
        if VERSION in ("0.5.18", "0.5.19"):
            pytest.skip("not in this version")
        module = __import__("sglang.srt.hardware_backend.npu.utils", fromlist=["x"])
        monkeypatch.setattr(module, "is_npu_arch35", lambda: True)
        if VERSION == "0.5.20":
            utils = __import__("sglang.srt.disaggregation.utils", fromlist=["x"])
            monkeypatch.setattr(utils, "get_dsv4_c4_state_indices", function_of("disaggregation/utils.py"))
    return request.param


@pytest.mark.parametrize("seed", range(3))
def test_equal_to_sglangs_own(is_a5, seed):
    draws = random.Random(seed)
    pool = pool_of(draws)
    edges = [0, 1, 127, 128, GROUP - 1, GROUP, GROUP + 1, GROUP + 128, 2 * GROUP]
    for _ in range(100):
        seq = draws.choice(edges) if draws.random() < 0.5 else draws.randint(0, COLUMNS * GROUP)
        prefix = draws.choice([0, seq, draws.choice(edges), draws.randint(0, seq), -3, seq + 5])
        row = draws.randrange(4)
        theirs = lists(sgl.hooks.dsv4_state_payloads(pool, row, seq, 128, prefix_len=prefix))
        with ours() as fallbacks:
            our = lists(sgl.hooks.dsv4_state_payloads(pool, row, seq, 128, prefix_len=prefix))
        assert fallbacks == []
        assert list(our) == list(theirs)
        for kind, expected in theirs.items():
            assert our[kind].dtype == expected.dtype == np.int32
            assert our[kind].tolist() == expected.tolist(), (kind, seq, prefix)


def test_case_25_states_are_not_cut_at_the_prefix(is_a5):
    """The receiver has 256 of 258 tokens: the states of tokens 252 to 257 travel all the same."""
    if not is_a5:
        pytest.skip("before A5 the states travel with the pages of swa")
    with ours():
        our = lists(sgl.hooks.dsv4_state_payloads(pool_of(random.Random(0)), 3, 258, 128, prefix_len=256))
    (states,) = (rows for kind, rows in our.items() if "C4" in kind.upper())
    assert states.tolist() == [3 * 16 + token % 16 for token in range(252, 258)]


def test_case_26_a_page_that_is_missing_is_an_error():
    """SGLang leaves it out, and pairs the pages behind it with the wrong ones of the other end."""
    pool = pool_of(random.Random(1))
    pool.req_to_c128_sidecar[2, 1] = 0
    (kind,) = (kind for kind in sgl.hooks.dsv4_state_payloads(pool, 2, 3 * GROUP, 128) if "128" in str(kind))
    assert len(sgl.hooks.dsv4_state_payloads(pool, 2, 3 * GROUP, 128)[kind]()) == 2
    with ours():
        payloads = sgl.hooks.dsv4_state_payloads(pool, 2, 3 * GROUP, 128)
        assert len(sgl.hooks.dsv4_state_payloads(pool, 2, 3 * GROUP, 128, prefix_len=2 * GROUP)[kind]()) == 1
        with pytest.raises(
            ValueError, match=r"request row 2 has c128 pages \[\d+, 0, \d+\] from column 0 on, expected 3"
        ):
            payloads[kind]()


def test_a_list_is_a_copy():
    """It may travel while the request goes on."""
    pool = pool_of(random.Random(2))
    with ours():
        payloads = lists(sgl.hooks.dsv4_state_payloads(pool, 1, GROUP, 128))
    before = [pages.tolist() for pages in payloads.values()]
    pool.req_to_c128_sidecar.zero_()
    assert [pages.tolist() for pages in payloads.values()] == before


def test_more_tokens_than_the_sidecar_has_columns():
    with ours():
        payloads = sgl.hooks.dsv4_state_payloads(pool_of(random.Random(3)), 1, (COLUMNS + 1) * GROUP, 128)
        with pytest.raises(ValueError, match=f"expected {COLUMNS + 1} from 1 up"):
            lists(payloads)
