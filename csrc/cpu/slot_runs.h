// Slots that follow each other, looked up together: through a mapping, or by the rule of a ring in pages.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/pool_address.h"

namespace dsv4::cpu {

// Units that are looked at together, at most.
constexpr int64_t kRun = 32;
// Fewer are looked at one by one.
constexpr int64_t kShortRun = 8;

// The slots of a mapping as they are.
struct AsMapped {
    bool keeps_31_bits() const { return true; }
    int64_t operator()(int64_t slot) const { return slot; }
    uint32_t operator()(uint32_t slot) const { return slot; }
};

// The rule of a ring in pages.
struct InPageRing {
    PoolAddress ring;
    int32_t page_shift;

    // A ring that is longer than a page makes slots larger.
    bool keeps_31_bits() const { return ring.ring_shift <= page_shift; }

    int64_t operator()(int64_t slot) const { return page_ring_slot(slot, page_shift, ring); }
    // The same of 31 bits, which compilers know how to shift several at a time.
    uint32_t operator()(uint32_t slot) const {
        return ((slot >> page_shift) << ring.ring_shift) + (slot & ((1U << ring.ring_shift) - 1));
    }
};

// slot_of(mapped) of a run of a mapping; false where one of them is none, or not within 31 bits. slot_of is a
// copy, which `out` cannot alias, so that its shifts stay in registers.
template <typename Entry, typename T, typename SlotOf>
bool map_run(const Entry* entries, SlotOf slot_of, int64_t count, T* out) {
    Entry seen = 0;
    Entry lack = 0;
    for (int64_t k = 0; k < count; ++k) {
        seen |= entries[k];
        lack |= entries[k] - 1;  // negative for 0
    }
    if (seen != static_cast<int32_t>(seen) || (seen | lack) < 0) {
        return false;
    }
    for (int64_t k = 0; k < count; ++k) {
        out[k] = static_cast<T>(slot_of(static_cast<uint32_t>(entries[k])));
    }
    return true;
}

// Whether the slots are first, first + 1, .., none of them too large for its type.
template <typename Entry>
bool is_run(const Entry* slots, int64_t count) {
    using Unsigned = std::make_unsigned_t<Entry>;  // differences may wrap
    const auto first = static_cast<Unsigned>(slots[0]);
    Unsigned other = 0;
    for (int64_t k = 1; k < count; ++k) {
        other |= static_cast<Unsigned>(slots[k]) - first - static_cast<Unsigned>(k);
    }
    return other == 0 && slots[0] > 0 && slots[0] <= std::numeric_limits<Entry>::max() - kRun;
}

}  // namespace dsv4::cpu
