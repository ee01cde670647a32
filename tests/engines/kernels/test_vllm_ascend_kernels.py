"""vLLM-Ascend's device kernels in the device simulator, with the results that their ops promise.

What the simulator finds in one of them is written down with it: the kernels are as they are in the wheel.
"""

import numpy as np
import pytest
import torch

from dsv4_npu_ops import compressor_metadata
from engines.kernels.wheel_kernels import WheelKernel


def words(*values: int | float) -> np.ndarray:
    """A struct of 4-byte members."""
    return np.frombuffer(
        b"".join((np.float32 if isinstance(value, float) else np.int32)(value).tobytes() for value in values),
        dtype=np.int32,
    ).copy()


def kinds(errors: list) -> set[str]:
    return {error.kind for error in errors}


@pytest.fixture(scope="module")
def metadata() -> WheelKernel:
    return WheelKernel("compressor_metadata")


def one_step(seed: int, dtype: torch.dtype, ratio: int) -> tuple[torch.Tensor, ...]:
    """RoPE tables, offsets, starts and block table: some blocks are missing, and long requests outgrow the table."""
    rng = np.random.default_rng(seed)
    requests, dim = 7, 64
    starts = rng.integers(0, 40 * ratio, requests)
    starts[rng.integers(requests)] = -1
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 6 * ratio, requests))])
    table = rng.integers(0, 1000, (requests, 3))
    table[rng.random(table.shape) < 0.2] = -1
    tables = (torch.tensor(rng.normal(size=(48 * ratio, dim)), dtype=dtype) for _ in range(2))
    return (*tables, *(torch.tensor(values, dtype=torch.int32) for values in (offsets, starts, table)))


def bits(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().view(torch.int32 if tensor.element_size() == 4 else torch.int16).numpy()


def by_wheel(
    kernel: WheelKernel, step: tuple[torch.Tensor, ...], rows: int, form: int, ratio: int, profile: str = "cann"
):
    """Bits of cos and sin, slots, and what the simulator found."""
    cos, sin, offsets, starts, table = step
    row_bytes = cos.shape[1] * cos.element_size()
    out = [np.full((rows, cos.shape[1]), -3, bits(cos).dtype) for _ in range(2)] + [np.full((rows, form), -3, np.int32)]
    requests, blocks, tile = len(starts), 5, 8
    sizes = (len(cos), cos.shape[1], table.shape[1], BLOCK, form, ratio, blocks, tile, row_bytes, row_bytes, form)
    key = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}[cos.dtype]
    arrays = [bits(cos), bits(sin), offsets.numpy(), starts.numpy(), table.numpy(), *out]
    tiling = words(rows, requests, requests, *sizes)
    return out, kernel.run(arrays, out, tiling, key=key, blocks=blocks, profile=profile)


BLOCK = 16


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ratio", [4, 128])
@pytest.mark.parametrize("seed", range(3))
def test_compressor_metadata_and_our_op(metadata, form, dtype, ratio, seed):
    step = one_step(seed, dtype, ratio)
    requests, tokens = len(step[3]), int(step[2][-1])
    rows = min(tokens, tokens // ratio + requests)
    (cos, sin, slots), found = by_wheel(metadata, step, rows, form, ratio)
    ours = compressor_metadata(*step, BLOCK, form, ratio, rows, requests)
    assert np.array_equal(slots.reshape(ours.slot_mapping.shape), ours.slot_mapping.numpy())
    assert np.array_equal(cos, bits(ours.cos[:, 0, 0])) and np.array_equal(sin, bits(ours.sin[:, 0, 0]))
    assert kinds(found) == set()


@pytest.mark.parametrize(
    ("without", "as_built", "strict"),
    [
        # The compiler orders the scalar unit and a copy; nothing but the flag orders a vector instruction and a copy.
        ("PipeSToMte3();", set(), {"order.raw", "order.war"}),
        ("PipeVToMte3();", {"order.raw"}, {"order.raw"}),
    ],
)
def test_a_flag_less_in_compressor_metadata(metadata, without, as_built, strict):
    step = one_step(0, torch.float32, 4)
    changed = WheelKernel("compressor_metadata", without=without)
    for profile, expected in (("cann", as_built), ("strict", strict)):
        assert kinds(by_wheel(metadata, step, 40, 1, 4, profile)[1]) == set()
        assert kinds(by_wheel(changed, step, 40, 1, 4, profile)[1]) == expected


def test_store_kv_block_copies_runs_of_tokens():
    kernel = WheelKernel("store_kv_block")
    rng = np.random.default_rng(1)
    size, tokens, slots, blocks = 48, 60, 200, 3
    for key, dtype in ((1, np.uint8), (2, np.float16), (4, np.int32)):
        keys = rng.integers(0, 100, (tokens, size)).astype(dtype)
        cache = np.zeros((slots, size), dtype)
        # Groups (length, first token, first slot); one that is empty and one without a slot.
        groups = np.array([(16, 0, 32), (5, 16, 0), (0, 21, 8), (16, 21, 96), (7, 37, -1), (3, 44, 63)], np.int32)
        expected = cache.copy()
        for length, token, slot in groups:
            if length > 0 and slot >= 0:
                expected[slot : slot + length] = keys[token : token + length]
        each, more = divmod(len(groups), blocks)
        tiling = words(16, dtype().itemsize, size, each, more, tokens, slots, len(groups))
        columns = [np.ascontiguousarray(groups[:, i]) for i in range(3)]
        found = kernel.run([keys, cache, *columns], [], tiling, key=key, blocks=blocks)
        assert np.array_equal(cache, expected)
        assert kinds(found) == set()


@pytest.mark.parametrize("rows_at_once", [1, 4])
def test_fused_gdn_gating(rows_at_once):
    kernel = WheelKernel("fused_gdn_gating")
    rng = np.random.default_rng(2)
    heads, batch = 64, 10
    log_a, bias = (rng.normal(size=heads).astype(np.float32) for _ in range(2))
    a, b = (rng.normal(scale=4, size=(batch, heads)).astype(np.float16) for _ in range(2))
    a[0, :4] = [30, 25, 20, -30]
    gate, beta = np.zeros((batch, heads), np.float32), np.zeros((batch, heads), np.float16)
    tiling = words(heads, batch, rows_at_once, 1, 1.0, 20.0)
    found = kernel.run([log_a, a, b, bias, gate, beta], [gate, beta], tiling, key=2, blocks=2)
    x = a.astype(np.float64) + bias
    soft = np.where(x <= 20, np.log1p(np.exp(np.minimum(x, 20))), x)
    assert np.allclose(gate, -np.exp(log_a.astype(np.float64)) * soft, rtol=1e-5, atol=1e-6)
    assert np.allclose(beta, 1 / (1 + np.exp(-b.astype(np.float64))), rtol=2e-3)
    # It keeps its constants in queues to the end, which only the strict profile minds.
    assert kinds(found) == set()


EAGLE_TILING = """#include <cstdint>
struct CopyAndExpandEagleInputsTilingData {
    uint32_t usedCoreNum, numReqs, reqsPerCore, remainderReqs;
    int32_t paddingTokenId, parallelDraftingTokenId;
    uint32_t numPaddingSlotsPerReq, totalInputTokens, totalDraftTokens, shiftInputIds;
};
using AscendSimTiling = CopyAndExpandEagleInputsTilingData;
"""


def expanded(ids, positions, following, starts, ends, slots, pad, parallel):
    """Rows of drafts without a shift: a request's valid tokens, the next one, parallel ones, and what was rejected."""
    rows = []
    for r, (start, end) in enumerate(zip(starts[:-1], ends, strict=True)):
        rejected = starts[r + 1] - end - 1
        at = positions[start]
        valid = [(ids[start + j], at + j, 0, 0) for j in range(end - start + 1)]
        rows += valid
        rows.append((following[r], at + len(valid), 0, 0))
        rows += [(parallel, at + len(valid) + k, 0, 1) for k in range(1, slots)]
        rows += [(pad, 0, 1, 0)] * rejected
    return np.array(rows, np.int32)


def test_copy_and_expand_eagle_inputs():
    kernel = WheelKernel("copy_and_expand_eagle_inputs", EAGLE_TILING)
    rng = np.random.default_rng(3)
    lengths, slots, pad, parallel, blocks = np.array([9, 16, 5, 12, 8]), 3, 7, 11, 2
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    ends = (starts[1:] - 1 - np.array([0, 2, 1, 0, 3])).astype(np.int32)
    total = int(starts[-1])
    # The kernel copies whole blocks of 32 bytes, past the arrays' ends: they have room there.
    room = np.zeros(16, np.int32)
    ids = rng.integers(100, 999, total)
    positions = np.concatenate([50 * i + np.arange(n) for i, n in enumerate(lengths)])
    following = rng.integers(1000, 1999, len(lengths))
    drafts = total + slots * len(lengths)
    out = [np.full(drafts, -3, dtype) for dtype in (np.int32, np.int32, np.int8, np.int8)]
    indices, mapping = np.full(slots * len(lengths), -3, np.int32), np.zeros(total, np.int32)
    each, more = divmod(len(lengths), blocks)
    tiling = words(blocks, len(lengths), each, more, pad, parallel, slots, total, drafts, 0)
    given = [np.concatenate([values, room]).astype(np.int32) for values in (ids, positions, following, starts, ends)]
    arrays = [*given, *out, indices, mapping]
    found = kernel.run(arrays, [*out, indices], tiling, key=1, blocks=blocks)
    expected = expanded(ids, positions, following, starts, ends, slots, pad, parallel)
    assert np.array_equal(np.stack(out, 1), expected)
    # Reads past the sizes that the kernel gave SetGlobalBuffer, which the block survives.
    assert kinds(found) == {"bounds.gm"}


def drafted(tokens: list[int], shortest: int, longest: int, count: int) -> list[int]:
    """What followed the first occurrence of the longest suffix that occurs before."""
    found = []
    for length in range(shortest, min(longest, len(tokens)) + 1):
        suffix = tokens[-length:]
        for at in range(len(tokens) - length):
            if tokens[at : at + length] == suffix:
                found = tokens[at + length :][:count]
                break
    return (found + [-1] * count)[:count]


@pytest.mark.parametrize("rows_at_once", [1, 2])
@pytest.mark.parametrize("tiles", [1, 2])
def test_ngram_spec_decode(rows_at_once, tiles):
    kernel = WheelKernel("ngram_spec_decode")
    rng = np.random.default_rng(4)
    blocks, longest, new, vocabulary, count = 3, 200, 4, 9, 5
    shortest_gram, longest_gram = 2, 4
    rows = blocks * rows_at_once * tiles
    tokens = rng.integers(0, vocabulary, (rows, longest)).astype(np.int32)
    lengths = rng.integers(20, 150, rows).astype(np.int32)
    sampled = rng.integers(0, vocabulary, (rows, new)).astype(np.int32)
    for row, kept in enumerate(rng.integers(0, new + 1, rows)):
        sampled[row, kept:] = -1
    discarded = (rng.random(rows) < 0.3).astype(np.int32)
    after = tokens.copy()
    expected = []
    for row in range(rows):
        end, take = lengths[row], 0 if discarded[row] else int((sampled[row] >= 0).sum())
        after[row, end : end + take] = sampled[row, :take]
        history = after[row, : end + take].tolist()
        draft = drafted(history, shortest_gram, longest_gram, count) if take else [-1] * count
        expected.append((history[-1], draft, sum(token >= 0 for token in draft)))
    following, drafts, valid = (np.full(shape, -3, np.int32) for shape in (rows, (rows, count), rows))
    info = (rows, longest, new, vocabulary, shortest_gram, longest_gram, count)
    tiling = words(*[0] * 86, *info, blocks, rows // blocks, 0, rows_at_once, 0)
    arrays = [tokens, lengths, sampled, discarded, following, drafts, valid]
    found = kernel.run(arrays, [following, drafts, valid], tiling, key=0, blocks=blocks)
    assert [(int(following[r]), drafts[r].tolist(), int(valid[r])) for r in range(rows)] == expected
    assert np.array_equal(tokens, after)
    # A second tile is loaded over the first while that is still being stored: nothing orders MTE2 after MTE3.
    assert kinds(found) == (set() if tiles == 1 else {"order.war"})
