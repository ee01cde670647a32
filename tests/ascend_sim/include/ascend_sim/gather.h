// Gather, Gatherb, GatherMask and Brcb.
#pragma once

#include <cstdint>

#include "ascend_sim/checked_field.h"
#include "ascend_sim/gather_engine.h"
#include "ascend_sim/tensor.h"

namespace AscendC {

struct GatherRepeatParams {
    GatherRepeatParams() = default;
    GatherRepeatParams(ascend_sim::CheckedField<uint8_t> dstBlk, ascend_sim::CheckedField<uint8_t> dstRep)
        : dstBlkStride(dstBlk), dstRepStride(dstRep) {}

    ascend_sim::CheckedField<uint8_t> dstBlkStride = 1;  // 32-byte blocks
    ascend_sim::CheckedField<uint8_t> dstRepStride = 8;  // 32-byte blocks
};

struct BrcbRepeatParams {
    BrcbRepeatParams() = default;
    BrcbRepeatParams(ascend_sim::CheckedField<uint16_t> dstBlk, ascend_sim::CheckedField<uint16_t> dstRep)
        : dstBlkStride(dstBlk), dstRepStride(dstRep) {}

    ascend_sim::CheckedField<uint16_t> dstBlkStride = 1;  // 32-byte blocks
    ascend_sim::CheckedField<uint16_t> dstRepStride = 8;  // 32-byte blocks
};

struct GatherMaskParams {
    GatherMaskParams() = default;
    GatherMaskParams(ascend_sim::CheckedField<uint8_t> src0Blk, ascend_sim::CheckedField<uint16_t> repeats,
                     ascend_sim::CheckedField<uint16_t> src0Rep, ascend_sim::CheckedField<uint8_t> src1Rep)
        : src0BlockStride(src0Blk), repeatTimes(repeats), src0RepeatStride(src0Rep), src1RepeatStride(src1Rep) {}

    ascend_sim::CheckedField<uint8_t> src0BlockStride = 1;  // 32-byte blocks
    ascend_sim::CheckedField<uint16_t> repeatTimes = 0;
    ascend_sim::CheckedField<uint16_t> src0RepeatStride = 8;  // 32-byte blocks
    ascend_sim::CheckedField<uint8_t> src1RepeatStride = 8;   // 32-byte blocks
};

// offset: byte offsets from src + base, multiples of the element size. count: elements.
template <class T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offset,
            const uint32_t base, const uint32_t count, CallSite site = CallSite::Here()) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Gather: the device does nothing for other element sizes");
    ascend_sim::GatherElements(Call{"Gather", site}, dst.view(), src.view(), offset.view(), base, count, sizeof(T));
}

// offset: byte offsets of 32-byte blocks, eight per repeat.
template <class T>
void Gatherb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offset,
             const uint8_t repeat, const GatherRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, uint16_t, uint32_t>, "Gatherb: uint16_t and uint32_t only");
    ascend_sim::GatherBlocks(Call{"Gatherb", site}, dst.view(), src.view(), offset.view(), repeat,
                             params.dstBlkStride.wide(), params.dstRepStride.wide(), sizeof(T));
}

// pattern: 1 even, 2 odd, 3..6 first..fourth of each four, 7 all elements.
template <class T>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint8_t pattern, const bool counterMode,
                const uint32_t mask, const GatherMaskParams& params, uint64_t& count,
                CallSite site = CallSite::Here()) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "GatherMask: 2- and 4-byte types only");
    const ascend_sim::MaskedGather gather{params.src0BlockStride.wide(),
                                          params.repeatTimes.wide(),
                                          params.src0RepeatStride.wide(),
                                          params.src1RepeatStride.wide(),
                                          counterMode,
                                          mask};
    count = ascend_sim::GatherByPattern(Call{"GatherMask", site}, dst.view(), src.view(), pattern, gather, sizeof(T));
}
template <class T, class U>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<U>& bits,
                const bool counterMode, const uint32_t mask, const GatherMaskParams& params, uint64_t& count,
                CallSite site = CallSite::Here()) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "GatherMask: 2- and 4-byte types only");
    static_assert(std::is_same_v<U, std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>>,
                  "GatherMask: the bit tensor is uint16_t for 2-byte data and uint32_t for 4-byte data");
    const ascend_sim::MaskedGather gather{params.src0BlockStride.wide(),
                                          params.repeatTimes.wide(),
                                          params.src0RepeatStride.wide(),
                                          params.src1RepeatStride.wide(),
                                          counterMode,
                                          mask};
    count = ascend_sim::GatherByBits(Call{"GatherMask", site}, dst.view(), src.view(), bits.view(), gather, sizeof(T));
}

// Each of 8 * repeat elements fills one 32-byte block.
template <class T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint8_t repeat, const BrcbRepeatParams& params,
          CallSite site = CallSite::Here()) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Brcb: 2- and 4-byte types only");
    ascend_sim::BroadcastToBlocks(Call{"Brcb", site}, dst.view(), src.view(), repeat, params.dstBlkStride.wide(),
                                  params.dstRepStride.wide(), sizeof(T));
}

}  // namespace AscendC
