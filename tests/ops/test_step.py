"""One step over every kind of address, in every form, against its oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.any_tables import BASES, FORMS, POISON, TOKEN_POOLS, any_steps, buffers, needs
from reference.step import POOLS, page_size, step_oracle

from dsv4_npu_ops import build_step

TOKEN_SLOTS = [f"out_{pool}_loc" for pool in TOKEN_POOLS]


def run(step, made, device, **keywords):
    tables, rows, requests = step.arguments(device)
    return build_step(
        tables,
        rows,
        made.out,
        req_pool_indices=requests,
        rope_cos=made.rope[0],
        rope_sin=made.rope[1],
        window_block=made.block,
        main_rope=made.token_rope["main"],
        compress_rope=made.token_rope["compress"],
        **keywords,
    )


def expect(step, made, **keywords):
    return step_oracle(
        step.tables.plain,
        step.batch.requests,
        step.batch.rows,
        made.sizes,
        window=step.window,
        cos=made.rope[0].tolist(),
        sin=made.rope[1].tolist(),
        token_rope={base: [table.tolist() for table in tables] for base, tables in made.token_rope.items()},
        block=made.block,
        **keywords,
    )


def first_difference(got, want, place=()):
    """Where two nested lists differ first, and what stands there."""
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a != b:
            return first_difference(a, b, (*place, i)) if isinstance(a, list) else ((*place, i), a, b)
    return None


def assert_outputs(step, made, want):
    for name, expected in want.items():
        got = getattr(made.out, name)
        if got.dim() > 2:
            got = got.flatten(0, -2)
        if name.startswith("out_") and got.dim() == 2:
            page = page_size(step.tables.plain, name.removeprefix("out_").removesuffix("_loc"))
            expected = [[slot // page, slot % page] for slot in expected]
        assert got.tolist() == expected, (name, first_difference(got.tolist(), expected))
    assert all((guard == POISON).all() for guard in made.guards), "what lies between rows"


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_any_fields_over_any_tables(device, form, data):
    step = data.draw(any_steps(device, form))
    made = data.draw(buffers(step, device))
    slots = data.draw(st.one_of(st.none(), st.dictionaries(st.sampled_from(POOLS), st.integers(-9, 1 << 20))))
    pages = data.draw(st.one_of(st.none(), st.dictionaries(st.sampled_from(POOLS), st.integers(-9, 99))))
    has_tokens = any(name == "positions" or name in TOKEN_SLOTS or name.split("_")[0] in BASES for name in made.sizes)
    closes = has_tokens and data.draw(st.booleans())
    assert run(step, made, device, dummy_slots=slots, dummy_pages=pages, closes_cu_seqlens=closes) is made.out
    assert_outputs(step, made, expect(step, made, dummy_slots=slots, dummy_pages=pages, closes=closes))


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_all_fields_at_once(device, form, data):
    step = data.draw(any_steps(device, form))
    made = data.draw(buffers(step, device, sorted(needs(step))))
    run(step, made, device)
    assert_outputs(step, made, expect(step, made))


@pytest.mark.parametrize("form", ["decode", "final", "verify"])
@given(data=st.data())
def test_any_fields_over_tables_of_pages(device, form, data):
    step = data.draw(any_steps(device, form, paged=True))
    made = data.draw(buffers(step, device, paged=True))
    slots = data.draw(st.one_of(st.none(), st.dictionaries(st.sampled_from(POOLS), st.integers(-9, 1 << 20))))
    pages = data.draw(st.one_of(st.none(), st.dictionaries(st.sampled_from(POOLS), st.integers(-9, 99))))
    run(step, made, device, dummy_slots=slots, dummy_pages=pages)
    assert_outputs(step, made, expect(step, made, dummy_slots=slots, dummy_pages=pages))


@pytest.mark.parametrize("form", ["decode", "final", "verify"])
@given(data=st.data())
def test_all_fields_at_once_over_tables_of_pages(device, form, data):
    step = data.draw(any_steps(device, form, paged=True))
    fields = [name for name in sorted(needs(step)) if not name.endswith(("_state_locs", "window_locs"))]
    made = data.draw(buffers(step, device, fields, paged=True))
    run(step, made, device)
    assert_outputs(step, made, expect(step, made))
