// The six pools in table order (docs/spec.md, model and pools), for code that handles all of them alike.
#pragma once

#include "common/compress.h"

namespace dsv4 {

constexpr int32_t kNumPools = 6;
constexpr int32_t kFull = 0;
constexpr int32_t kSwa = 1;
constexpr int32_t kC4 = 2;
constexpr int32_t kC128 = 3;
constexpr int32_t kC4State = 4;
constexpr int32_t kC128State = 5;

// Raw tokens that one unit (slot) stands for.
DSV4_HOST_DEVICE constexpr int64_t tokens_per_unit(int32_t pool) {
    return pool == kC4 ? kRatioC4 : pool == kC128 ? kRatioC128 : 1;
}

// log2 of that.
DSV4_HOST_DEVICE constexpr int32_t unit_shift(int32_t pool) {
    return pool == kC4 ? kShiftC4 : pool == kC128 ? kShiftC128 : 0;
}

DSV4_HOST_DEVICE constexpr bool is_state_pool(int32_t pool) { return pool == kC4State || pool == kC128State; }

// Pools whose pages are freed while the request lives.
DSV4_HOST_DEVICE constexpr bool is_windowed_pool(int32_t pool) { return pool == kSwa || is_state_pool(pool); }

// Units that a request of `length` raw tokens has in a pool.
DSV4_HOST_DEVICE constexpr int64_t units_in(int64_t length, int32_t pool) { return length / tokens_per_unit(pool); }

// First unit of a windowed pool that a request of `length` committed tokens still reads.
DSV4_HOST_DEVICE constexpr int64_t window_first_needed(int64_t length, int32_t pool, int64_t sliding_window) {
    return pool == kSwa ? swa_first_needed(length, sliding_window)
                        : first_needed(length, pool == kC4State ? kRatioC4 : kRatioC128);
}

// First unit of a windowed pool that such a request keeps: whole pages.
DSV4_HOST_DEVICE constexpr int64_t window_start(int64_t length, int32_t pool, int64_t sliding_window,
                                                int32_t page_shift) {
    return page_start(window_first_needed(length, pool, sliding_window), page_shift);
}

}  // namespace dsv4
