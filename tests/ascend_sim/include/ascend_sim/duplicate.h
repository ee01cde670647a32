// Duplicate, and UB-to-UB Copy.
#pragma once

#include <cstdint>

#include "ascend_sim/vector_unary.h"

namespace ascend_sim {

template <class T>
void FillLanes(const char* name, CallSite site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst, T value,
               Stride stride) {
    if (lanes.Empty()) {
        return NoteNop(Call{name, site}, Pipe::V);
    }
    LaneOp op(name, site, lanes, sizeof(T));
    T* out = op.Out("dst", dst, stride);
    op.Issue(FullRate<T>());
    for (uint32_t i = 0; i < op.count(); ++i) {
        out[i] = value;
    }
    op.Finish();
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalar, const int32_t& count, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t, int32_t, uint32_t, half, bfloat16_t, float>,
                  "Duplicate: the device fills 2- and 4-byte types only");
    ascend_sim::FillLanes("Duplicate", site, ascend_sim::CountedLanes(Call{"Duplicate", site}, count, isSetMask), dst,
                          scalar, {});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Duplicate(const LocalTensor<T>& dst, const T& scalar, const Mask& mask,
                                                  const uint8_t repeat, const uint16_t dstBlkStride,
                                                  const uint8_t dstRepStride, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t, int32_t, uint32_t, half, bfloat16_t, float>,
                  "Duplicate: the device fills 2- and 4-byte types only");
    const Call call{"Duplicate", site};
    ascend_sim::FillLanes("Duplicate", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, scalar,
                          {dstBlkStride, dstRepStride});
}

struct CopyRepeatParams {
    CopyRepeatParams() = default;
    CopyRepeatParams(uint16_t dstBlk, uint16_t srcBlk, uint16_t dstRep, uint16_t srcRep)
        : dstStride(dstBlk), srcStride(srcBlk), dstRepeatSize(dstRep), srcRepeatSize(srcRep) {}

    uint16_t dstStride = 1;  // 32-byte blocks, block to block
    uint16_t srcStride = 1;
    uint16_t dstRepeatSize = 8;  // 32-byte blocks, repeat to repeat
    uint16_t srcRepeatSize = 8;
};

template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask,
                                             const uint8_t repeat, const CopyRepeatParams& params,
                                             CallSite site = CallSite::Here()) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Copy: the device does nothing for other element sizes");
    const Call call{"Copy", site};
    const ascend_sim::Lanes lanes = detail::LanesOf<T>(call, mask, repeat, isSetMask);
    if (lanes.Empty()) {
        return ascend_sim::NoteNop(call, ascend_sim::Pipe::V);
    }
    ascend_sim::LaneOp op("Copy", site, lanes, sizeof(T));
    const T* in = op.In("src", src, {params.srcStride, params.srcRepeatSize});
    T* out = op.Out("dst", dst, {params.dstStride, params.dstRepeatSize});
    op.Issue(ascend_sim::FullRate<T>());
    for (uint32_t i = 0; i < op.count(); ++i) {
        out[i] = in[i];
    }
    op.Finish();
}

}  // namespace AscendC
