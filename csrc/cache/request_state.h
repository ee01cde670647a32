// What the ledger knows of one row of the request tables, and of the pools as a whole.
#pragma once

#include <array>

#include "cache/shared_pages.h"
#include "cache/unit_runs.h"
#include "common/pools.h"

namespace dsv4 {

struct CacheGeometry {
    std::array<int32_t, kNumPools> page_shift;  // table order, like the next two
    std::array<int64_t, kNumPools> columns;     // of the page tables; of a windowed pool they may be a ring
    std::array<bool, kNumPools> pool_exists;
    int64_t sliding_window;   // raw tokens
    int64_t max_requests;     // rows
    int64_t max_context_len;  // raw tokens
    bool maps_full_to_swa;    // somebody keeps a mapping and wants to know what changes in it

    // First unit of a windowed pool that a request of `length` tokens keeps.
    int64_t kept_from(int64_t length, int32_t pool) const {
        return window_start(length, pool, sliding_window, page_shift[pool]);
    }
};

struct RequestLife {
    bool live = false;
    int64_t incarnation = 0;                             // counts the requests that the ledger has started
    int64_t allocated_len = 0;                           // raw tokens
    std::array<int64_t, kNumPools> evicted_before = {};  // units before this one are gone for good
    // Tokens that a swa_tail left out. Some have slots, because pages are whole, but nobody fills those.
    UnitRange unfilled_swa = {0, 0};

    // Whether a step from `length` tokens on, or a request that starts with them, would read such a token.
    bool reads_unfilled(int32_t pool, int64_t length, int64_t sliding_window) const {
        const UnitRange read{window_first_needed(length, pool, sliding_window), length};
        return pool == kSwa && read.overlaps(unfilled_swa);
    }
};

struct RequestState : RequestLife {
    std::array<UnitRuns, kNumPools> owned;      // units that were given slots; every run starts at a page boundary
    std::array<SharedPages, kNumPools> shared;  // those of their pages that were shared once

    void end() {
        live = false;
        allocated_len = 0;
        evicted_before = {};
        unfilled_swa = {0, 0};
        for (UnitRuns& runs : owned) {
            runs.clear();
        }
        for (SharedPages& pages : shared) {
            pages.clear();
        }
    }
};

}  // namespace dsv4
