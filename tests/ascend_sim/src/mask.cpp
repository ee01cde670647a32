// Vector mask state, and the lanes that the forms of an instruction work on.
#include <algorithm>

#include "ascend_sim/lanes.h"
#include "block.h"
#include "report.h"

namespace ascend_sim {

namespace {

constexpr uint32_t kRepeatBytes = 256;

}  // namespace

void SetVectorMaskState(const Call& call, uint64_t high, uint64_t low) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    now.mask[0] = low;
    now.mask[1] = high;
    now.mask_call = call;
}

void SetMaskMode(const Call& call, bool counter) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    now.mask_counter = counter;
    now.mask_call = call;
}

void ResetVectorMask(const Call& call) { SetVectorMaskState(call, ~uint64_t{0}, ~uint64_t{0}); }

namespace {

void CheckRepeats(const Call& call, uint32_t repeats) {
    if (repeats > 255) {
        Fail(call, Pipe::V, "range.repeat", "repeat %u; expected at most 255", repeats);
    }
}

// What a form with isSetMask = false works on.
Lanes InheritedLanes(uint32_t repeats) {
    const Block& now = CurrentBlock();
    Lanes lanes;
    lanes.counted = now.mask_counter;
    lanes.count = now.mask[0];
    lanes.mask[0] = now.mask[0];
    lanes.mask[1] = now.mask[1];
    lanes.repeats = repeats;
    return lanes;
}

}  // namespace

Lanes CountedLanes(const Call& call, int64_t n, bool set_mask) {
    if (n < 0) {
        Fail(call, Pipe::V, "range.count", "count %lld; expected at least 0", static_cast<long long>(n));
    }
    Block& now = CurrentBlock();
    if (set_mask) {
        now.mask_counter = false;
        now.mask[0] = now.mask[1] = ~uint64_t{0};
    }
    Lanes lanes;
    lanes.count = static_cast<uint64_t>(n);
    return lanes;
}

Lanes MaskedLanes(const Call& call, uint64_t mask_count, uint32_t repeats, uint32_t lane_bytes, bool set_mask) {
    CheckRepeats(call, repeats);
    if (!set_mask) {
        return InheritedLanes(repeats);
    }
    const uint64_t most = kRepeatBytes / std::max(lane_bytes, 2u);
    if (mask_count > most) {
        Fail(call, Pipe::V, "range.mask", "mask of %llu elements; expected at most the %llu of one repeat",
             static_cast<unsigned long long>(mask_count), static_cast<unsigned long long>(most));
    }
    Block& now = CurrentBlock();
    Lanes lanes;
    lanes.counted = false;
    lanes.repeats = repeats;
    for (uint64_t i = 0; i < mask_count; ++i) {
        lanes.mask[i / 64] |= uint64_t{1} << (i % 64);
    }
    if (now.mask_counter) {
        lanes.counted = true;
        lanes.count = mask_count;
    }
    return lanes;
}

Lanes MaskedLanes(const Call& call, const uint64_t mask[2], uint32_t repeats, uint32_t lane_bytes, bool set_mask) {
    CheckRepeats(call, repeats);
    if (!set_mask) {
        return InheritedLanes(repeats);
    }
    if (lane_bytes >= 4 && mask[1] != 0) {
        Fail(call, Pipe::V, "range.mask", "mask[1] is 0x%llx; expected 0, a repeat of 4-byte elements has 64 lanes",
             static_cast<unsigned long long>(mask[1]));
    }
    Lanes lanes;
    lanes.counted = false;
    lanes.repeats = repeats;
    lanes.mask[0] = mask[0];
    lanes.mask[1] = mask[1];
    return lanes;
}

}  // namespace ascend_sim
