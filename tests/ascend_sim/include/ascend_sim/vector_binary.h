// Element-wise instructions with two sources.
#pragma once

#include <cstdint>

#include "ascend_sim/checked_field.h"
#include "ascend_sim/mask.h"
#include "ascend_sim/vector_math.h"

namespace AscendC {

struct BinaryRepeatParams {
    BinaryRepeatParams() = default;
    BinaryRepeatParams(ascend_sim::CheckedField<uint8_t> dstBlk, ascend_sim::CheckedField<uint8_t> src0Blk,
                       ascend_sim::CheckedField<uint8_t> src1Blk, ascend_sim::CheckedField<uint8_t> dstRep,
                       ascend_sim::CheckedField<uint8_t> src0Rep, ascend_sim::CheckedField<uint8_t> src1Rep)
        : dstBlkStride(dstBlk),
          src0BlkStride(src0Blk),
          src1BlkStride(src1Blk),
          dstRepStride(dstRep),
          src0RepStride(src0Rep),
          src1RepStride(src1Rep) {}

    // In 32-byte blocks: block to block within a repeat, repeat to repeat.
    ascend_sim::CheckedField<uint8_t> dstBlkStride = 1;
    ascend_sim::CheckedField<uint8_t> src0BlkStride = 1;
    ascend_sim::CheckedField<uint8_t> src1BlkStride = 1;
    ascend_sim::CheckedField<uint8_t> dstRepStride = 8;
    ascend_sim::CheckedField<uint8_t> src0RepStride = 8;
    ascend_sim::CheckedField<uint8_t> src1RepStride = 8;
};

namespace detail {

inline uint32_t StrideField(const Call& call, const char* field, ascend_sim::CheckedField<uint8_t> value) {
    if (value.wide() < 0 || value.wide() > 255) {
        ascend_sim::Fail(call, ascend_sim::Pipe::V, "range.stride", "%s is %lld blocks; expected 0..255", field,
                         static_cast<long long>(value.wide()));
    }
    return value;
}

inline ascend_sim::Strides3 StridesOf(const Call& call, const BinaryRepeatParams& params) {
    return {{StrideField(call, "dstBlkStride", params.dstBlkStride),
             StrideField(call, "dstRepStride", params.dstRepStride)},
            {StrideField(call, "src0BlkStride", params.src0BlkStride),
             StrideField(call, "src0RepStride", params.src0RepStride)},
            {StrideField(call, "src1BlkStride", params.src1BlkStride),
             StrideField(call, "src1RepStride", params.src1RepStride)}};
}

}  // namespace detail

template <class T, bool isSetMask = true>
void Add(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,
         CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Add: the device computes int16_t, int32_t, half, float only");
    const ascend_sim::Lanes lanes = ascend_sim::CountedLanes(Call{"Add", site}, count, isSetMask);
    ascend_sim::BinaryLanes("Add", site, lanes, dst, src0, src1, {}, ascend_sim::FullRate<T>(), ascend_sim::AddLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Add(const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                                            const LocalTensor<T>& src1, const Mask& mask, const uint8_t repeat,
                                            const BinaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Add: the device computes int16_t, int32_t, half, float only");
    const Call call{"Add", site};
    const ascend_sim::Lanes lanes = detail::LanesOf<T>(call, mask, repeat, isSetMask);
    ascend_sim::BinaryLanes("Add", site, lanes, dst, src0, src1, detail::StridesOf(call, params),
                            ascend_sim::FullRate<T>(), ascend_sim::AddLane{});
}

template <class T, bool isSetMask = true>
void Sub(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,
         CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Sub: the device computes int16_t, int32_t, half, float only");
    const ascend_sim::Lanes lanes = ascend_sim::CountedLanes(Call{"Sub", site}, count, isSetMask);
    ascend_sim::BinaryLanes("Sub", site, lanes, dst, src0, src1, {}, ascend_sim::FullRate<T>(), ascend_sim::SubLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Sub(const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                                            const LocalTensor<T>& src1, const Mask& mask, const uint8_t repeat,
                                            const BinaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Sub: the device computes int16_t, int32_t, half, float only");
    const Call call{"Sub", site};
    const ascend_sim::Lanes lanes = detail::LanesOf<T>(call, mask, repeat, isSetMask);
    ascend_sim::BinaryLanes("Sub", site, lanes, dst, src0, src1, detail::StridesOf(call, params),
                            ascend_sim::FullRate<T>(), ascend_sim::SubLane{});
}

template <class T, bool isSetMask = true>
void Mul(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,
         CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Mul: the device computes int16_t, int32_t, half, float only");
    const ascend_sim::Lanes lanes = ascend_sim::CountedLanes(Call{"Mul", site}, count, isSetMask);
    ascend_sim::BinaryLanes("Mul", site, lanes, dst, src0, src1, {}, ascend_sim::FullRate<T>(), ascend_sim::MulLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Mul(const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                                            const LocalTensor<T>& src1, const Mask& mask, const uint8_t repeat,
                                            const BinaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Mul: the device computes int16_t, int32_t, half, float only");
    const Call call{"Mul", site};
    const ascend_sim::Lanes lanes = detail::LanesOf<T>(call, mask, repeat, isSetMask);
    ascend_sim::BinaryLanes("Mul", site, lanes, dst, src0, src1, detail::StridesOf(call, params),
                            ascend_sim::FullRate<T>(), ascend_sim::MulLane{});
}

template <class T, bool isSetMask = true>
void Div(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,
         CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Div: the device computes half, float only");
    const ascend_sim::Lanes lanes = ascend_sim::CountedLanes(Call{"Div", site}, count, isSetMask);
    ascend_sim::BinaryLanes("Div", site, lanes, dst, src0, src1, {}, ascend_sim::FullRate<T>() / 2,
                            ascend_sim::DivLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Div(const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                                            const LocalTensor<T>& src1, const Mask& mask, const uint8_t repeat,
                                            const BinaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Div: the device computes half, float only");
    const Call call{"Div", site};
    const ascend_sim::Lanes lanes = detail::LanesOf<T>(call, mask, repeat, isSetMask);
    ascend_sim::BinaryLanes("Div", site, lanes, dst, src0, src1, detail::StridesOf(call, params),
                            ascend_sim::FullRate<T>() / 2, ascend_sim::DivLane{});
}

template <class T, bool isSetMask = true>
void Max(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,
         CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Max: the device computes int16_t, int32_t, half, float only");
    const ascend_sim::Lanes lanes = ascend_sim::CountedLanes(Call{"Max", site}, count, isSetMask);
    ascend_sim::BinaryLanes("Max", site, lanes, dst, src0, src1, {}, ascend_sim::FullRate<T>(), ascend_sim::MaxLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Max(const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                                            const LocalTensor<T>& src1, const Mask& mask, const uint8_t repeat,
                                            const BinaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Max: the device computes int16_t, int32_t, half, float only");
    const Call call{"Max", site};
    const ascend_sim::Lanes lanes = detail::LanesOf<T>(call, mask, repeat, isSetMask);
    ascend_sim::BinaryLanes("Max", site, lanes, dst, src0, src1, detail::StridesOf(call, params),
                            ascend_sim::FullRate<T>(), ascend_sim::MaxLane{});
}

template <class T, bool isSetMask = true>
void Min(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,
         CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Min: the device computes int16_t, int32_t, half, float only");
    const ascend_sim::Lanes lanes = ascend_sim::CountedLanes(Call{"Min", site}, count, isSetMask);
    ascend_sim::BinaryLanes("Min", site, lanes, dst, src0, src1, {}, ascend_sim::FullRate<T>(), ascend_sim::MinLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Min(const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                                            const LocalTensor<T>& src1, const Mask& mask, const uint8_t repeat,
                                            const BinaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Min: the device computes int16_t, int32_t, half, float only");
    const Call call{"Min", site};
    const ascend_sim::Lanes lanes = detail::LanesOf<T>(call, mask, repeat, isSetMask);
    ascend_sim::BinaryLanes("Min", site, lanes, dst, src0, src1, detail::StridesOf(call, params),
                            ascend_sim::FullRate<T>(), ascend_sim::MinLane{});
}

// 16-bit lanes only: on wider types the device still counts 16-bit lanes, so reinterpret and double the count.
template <class T, bool isSetMask = true>
void And(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,
         CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t>, "And: the device computes int16_t, uint16_t only");
    const ascend_sim::Lanes lanes = ascend_sim::CountedLanes(Call{"And", site}, count, isSetMask);
    ascend_sim::BinaryLanes("And", site, lanes, dst, src0, src1, {}, ascend_sim::FullRate<T>(), ascend_sim::AndLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> And(const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                                            const LocalTensor<T>& src1, const Mask& mask, const uint8_t repeat,
                                            const BinaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t>, "And: the device computes int16_t, uint16_t only");
    const Call call{"And", site};
    const ascend_sim::Lanes lanes = detail::LanesOf<T>(call, mask, repeat, isSetMask);
    ascend_sim::BinaryLanes("And", site, lanes, dst, src0, src1, detail::StridesOf(call, params),
                            ascend_sim::FullRate<T>(), ascend_sim::AndLane{});
}

// 16-bit lanes only: on wider types the device still counts 16-bit lanes, so reinterpret and double the count.
template <class T, bool isSetMask = true>
void Or(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,
        CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t>, "Or: the device computes int16_t, uint16_t only");
    const ascend_sim::Lanes lanes = ascend_sim::CountedLanes(Call{"Or", site}, count, isSetMask);
    ascend_sim::BinaryLanes("Or", site, lanes, dst, src0, src1, {}, ascend_sim::FullRate<T>(), ascend_sim::OrLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Or(const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                                           const LocalTensor<T>& src1, const Mask& mask, const uint8_t repeat,
                                           const BinaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t>, "Or: the device computes int16_t, uint16_t only");
    const Call call{"Or", site};
    const ascend_sim::Lanes lanes = detail::LanesOf<T>(call, mask, repeat, isSetMask);
    ascend_sim::BinaryLanes("Or", site, lanes, dst, src0, src1, detail::StridesOf(call, params),
                            ascend_sim::FullRate<T>(), ascend_sim::OrLane{});
}

}  // namespace AscendC
