// Gathers on bytes: the part that does not depend on the element type.
#pragma once

#include <cstdint>

#include "ascend_sim/instruction.h"

namespace ascend_sim {

// Strides in 32-byte blocks; mask: elements per repeat in counter mode.
struct MaskedGather {
    int64_t src_block_stride;
    int64_t repeats;
    int64_t src_repeat_stride;
    int64_t bits_repeat_stride;
    bool counter;
    uint32_t mask;
};

void GatherElements(const Call& call, const UbView& dst, const UbView& src, const UbView& offset, uint32_t base,
                    uint32_t count, uint32_t elem_bytes);
void GatherBlocks(const Call& call, const UbView& dst, const UbView& src, const UbView& offset, uint32_t repeat,
                  int64_t block_stride, int64_t repeat_stride, uint32_t elem_bytes);
// Both return how many elements were kept.
uint64_t GatherByPattern(const Call& call, const UbView& dst, const UbView& src, uint32_t pattern,
                         const MaskedGather& gather, uint32_t elem_bytes);
uint64_t GatherByBits(const Call& call, const UbView& dst, const UbView& src, const UbView& bits,
                      const MaskedGather& gather, uint32_t elem_bytes);
void BroadcastToBlocks(const Call& call, const UbView& dst, const UbView& src, uint32_t repeat, int64_t block_stride,
                       int64_t repeat_stride, uint32_t elem_bytes);

}  // namespace ascend_sim
