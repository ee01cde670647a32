// Groups and windows of the compressed layers (docs/spec.md, groups; windows). Lengths and positions are in raw tokens.
#pragma once

#include "common/paging.h"

namespace dsv4 {

constexpr int64_t kRatioC4 = 4;
constexpr int64_t kRatioC128 = 128;
constexpr int32_t kShiftC4 = 2;  // log2 of the ratio
constexpr int32_t kShiftC128 = 7;
static_assert(kRatioC4 == 1 << kShiftC4 && kRatioC128 == 1 << kShiftC128);

// How many groups before the open one a compressor still reads.
DSV4_HOST_DEVICE constexpr int64_t overlap_of(int64_t ratio) {
    return ratio == kRatioC4 ? 1 : 0;
}

// Groups of `ratio` tokens that are complete once `length` tokens are in the cache.
DSV4_HOST_DEVICE constexpr int64_t groups_in(int64_t length, int64_t ratio) {
    return length / ratio;
}

// RoPE position of a group's compressed entry: that of its first token.
DSV4_HOST_DEVICE constexpr int64_t group_position(int64_t group, int64_t ratio) {
    return group * ratio;
}

// First raw position whose compressor state a request of `length` committed tokens still needs.
DSV4_HOST_DEVICE constexpr int64_t first_needed(int64_t length, int64_t ratio) {
    return max_of<int64_t>(0, (groups_in(length, ratio) - overlap_of(ratio)) * ratio);
}

// First raw position that the token at `length` attends to in the sliding window.
DSV4_HOST_DEVICE constexpr int64_t swa_first_needed(int64_t length, int64_t window) {
    return max_of<int64_t>(0, length - window + 1);
}

// Entries of a dense per-group output: room for every group that `tokens` new tokens in `rows` rows can complete.
DSV4_HOST_DEVICE constexpr int64_t group_capacity(int64_t tokens, int64_t rows, int64_t ratio) {
    return max_of<int64_t>(1, min_of<int64_t>(tokens, tokens / ratio + rows));
}

}  // namespace dsv4
