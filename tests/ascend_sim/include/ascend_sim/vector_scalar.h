// Element-wise instructions with a tensor and a scalar of exactly the tensor's type.
#pragma once

#include <cstdint>

#include "ascend_sim/mask.h"
#include "ascend_sim/vector_unary.h"

namespace ascend_sim {

struct LeakyReluLane {
    template <class T>
    T operator()(T a, T slope, bool&) const {
        return float(a) < 0 ? T(float(a) * float(slope)) : a;
    }
};

template <class T>
void CheckShift(const Call& call, T bits) {
    if (bits < T(0) || static_cast<uint32_t>(bits) > sizeof(T) * 8) {
        Fail(call, Pipe::V, "range.shift", "shift by %lld; expected 0..%zu", static_cast<long long>(bits),
             sizeof(T) * 8);
    }
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, bool isSetMask = true>
void Adds(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,
          CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Adds: the device computes int16_t, int32_t, half, float only");
    const Call call{"Adds", site};
    ascend_sim::UnaryLanes("Adds", site, ascend_sim::CountedLanes(call, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::AddLane{}(a, scalar, odd); });
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Adds(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar,
                                             const Mask& mask, const uint8_t repeat, const UnaryRepeatParams& params,
                                             CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Adds: the device computes int16_t, int32_t, half, float only");
    const Call call{"Adds", site};
    ascend_sim::UnaryLanes("Adds", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::AddLane{}(a, scalar, odd); });
}

template <class T, bool isSetMask = true>
void Muls(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,
          CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Muls: the device computes int16_t, int32_t, half, float only");
    const Call call{"Muls", site};
    ascend_sim::UnaryLanes("Muls", site, ascend_sim::CountedLanes(call, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::MulLane{}(a, scalar, odd); });
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Muls(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar,
                                             const Mask& mask, const uint8_t repeat, const UnaryRepeatParams& params,
                                             CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Muls: the device computes int16_t, int32_t, half, float only");
    const Call call{"Muls", site};
    ascend_sim::UnaryLanes("Muls", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::MulLane{}(a, scalar, odd); });
}

template <class T, bool isSetMask = true>
void Maxs(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,
          CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Maxs: the device computes int16_t, int32_t, half, float only");
    const Call call{"Maxs", site};
    ascend_sim::UnaryLanes("Maxs", site, ascend_sim::CountedLanes(call, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::MaxLane{}(a, scalar, odd); });
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Maxs(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar,
                                             const Mask& mask, const uint8_t repeat, const UnaryRepeatParams& params,
                                             CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Maxs: the device computes int16_t, int32_t, half, float only");
    const Call call{"Maxs", site};
    ascend_sim::UnaryLanes("Maxs", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::MaxLane{}(a, scalar, odd); });
}

template <class T, bool isSetMask = true>
void Mins(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,
          CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Mins: the device computes int16_t, int32_t, half, float only");
    const Call call{"Mins", site};
    ascend_sim::UnaryLanes("Mins", site, ascend_sim::CountedLanes(call, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::MinLane{}(a, scalar, odd); });
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Mins(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar,
                                             const Mask& mask, const uint8_t repeat, const UnaryRepeatParams& params,
                                             CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "Mins: the device computes int16_t, int32_t, half, float only");
    const Call call{"Mins", site};
    ascend_sim::UnaryLanes("Mins", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::MinLane{}(a, scalar, odd); });
}

template <class T, bool isSetMask = true>
void ShiftLeft(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,
               CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t, int32_t, uint32_t>,
                  "ShiftLeft: the device computes int16_t, uint16_t, int32_t, uint32_t only");
    const Call call{"ShiftLeft", site};
    ascend_sim::CheckShift(call, scalar);
    ascend_sim::UnaryLanes("ShiftLeft", site, ascend_sim::CountedLanes(call, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::ShiftLeftLane{}(a, scalar, odd); });
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> ShiftLeft(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar,
                                                  const Mask& mask, const uint8_t repeat,
                                                  const UnaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t, int32_t, uint32_t>,
                  "ShiftLeft: the device computes int16_t, uint16_t, int32_t, uint32_t only");
    const Call call{"ShiftLeft", site};
    ascend_sim::CheckShift(call, scalar);
    ascend_sim::UnaryLanes("ShiftLeft", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::ShiftLeftLane{}(a, scalar, odd); });
}

template <class T, bool isSetMask = true>
void ShiftRight(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,
                CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t, int32_t, uint32_t>,
                  "ShiftRight: the device computes int16_t, uint16_t, int32_t, uint32_t only");
    const Call call{"ShiftRight", site};
    ascend_sim::CheckShift(call, scalar);
    ascend_sim::UnaryLanes("ShiftRight", site, ascend_sim::CountedLanes(call, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::ShiftRightLane{}(a, scalar, odd); });
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> ShiftRight(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                                   const T& scalar, const Mask& mask, const uint8_t repeat,
                                                   const UnaryRepeatParams& params, bool roundEn = false,
                                                   CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t, int32_t, uint32_t>,
                  "ShiftRight: the device computes int16_t, uint16_t, int32_t, uint32_t only");
    const Call call{"ShiftRight", site};
    if (roundEn) {
        ascend_sim::Fail(call, ascend_sim::Pipe::V, "unsupported", "roundEn is true; expected false");
    }
    ascend_sim::CheckShift(call, scalar);
    ascend_sim::UnaryLanes("ShiftRight", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::ShiftRightLane{}(a, scalar, odd); });
}

template <class T, bool isSetMask = true>
void LeakyRelu(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,
               CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "LeakyRelu: the device computes half, float only");
    const Call call{"LeakyRelu", site};
    ascend_sim::UnaryLanes("LeakyRelu", site, ascend_sim::CountedLanes(call, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::LeakyReluLane{}(a, scalar, odd); });
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> LeakyRelu(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar,
                                                  const Mask& mask, const uint8_t repeat,
                                                  const UnaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "LeakyRelu: the device computes half, float only");
    const Call call{"LeakyRelu", site};
    ascend_sim::UnaryLanes("LeakyRelu", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           [&](T a, bool& odd) { return ascend_sim::LeakyReluLane{}(a, scalar, odd); });
}

}  // namespace AscendC
