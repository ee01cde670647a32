// Slots of ratio-4 groups from the full slots of their last tokens: parameters and index arithmetic, shared by the CPU
// loops and the device kernel.
#pragma once

#include "common/compress.h"
#include "common/launch_plan.h"

struct C4SlotsFromFullParams {
    int64_t num_slots;        // entries of the input
    int64_t capacity_groups;  // entries of the output
};

namespace dsv4 {

constexpr int32_t kC4SlotsTooMany = 1;  // more groups than the output holds

// A slot has the offset of its token in the page, so that of a group's last token is 3 modulo 4, if pages are not
// shorter than a group. 0 and negative entries are nobody's.
constexpr int64_t kLastOfGroup = kRatioC4 - 1;
constexpr int32_t kGroupShift = 2;

DSV4_HOST_DEVICE constexpr bool completes_group(int64_t full_slot) {
    return full_slot > 0 && (full_slot & kLastOfGroup) == kLastOfGroup;
}

DSV4_HOST_DEVICE constexpr int64_t c4_slot(int64_t full_slot) { return full_slot >> kGroupShift; }

// The bits of a full slot that decide: the sign and the place in the group.
constexpr uint32_t kDecidingBits = 0x80000000u | static_cast<uint32_t>(kLastOfGroup);

// What a device works on at a time, in two buffers in turn; comparisons come in 256 bytes.
constexpr int32_t kC4TileSlots = 4096;
constexpr int32_t kC4CompareSlots = 64;

}  // namespace dsv4
