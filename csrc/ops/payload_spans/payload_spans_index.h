// Which units of a request a prefill-decode transfer moves (docs/spec.md, prefill-decode disaggregation).
#pragma once

#include "common/pools.h"

namespace dsv4 {

// Units [first, end) of one pool; empty when first == end.
struct UnitSpan {
    int64_t first;
    int64_t end;
};

// KV starts where the receiver's prefix ends. State never does: the receiver's prefix says nothing about its state.
DSV4_HOST_DEVICE constexpr int64_t payload_clip(int32_t pool, int64_t prefix_len) {
    return is_state_pool(pool) ? 0 : units_in(prefix_len, pool);
}

// What a request of `seq_len` committed tokens needs to go on elsewhere, beyond a prefix that is there already.
DSV4_HOST_DEVICE constexpr UnitSpan payload_span(int32_t pool, int64_t seq_len, int64_t prefix_len,
                                                 int64_t sliding_window) {
    const int64_t end = units_in(seq_len, pool);
    const int64_t live = is_windowed_pool(pool) ? window_first_needed(seq_len, pool, sliding_window) : 0;
    return {min_of(end, max_of(live, payload_clip(pool, prefix_len))), end};
}

}  // namespace dsv4
