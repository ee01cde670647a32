// Element-wise instructions with one source.
#pragma once

#include <cstdint>

#include "ascend_sim/checked_field.h"
#include "ascend_sim/mask.h"
#include "ascend_sim/vector_math.h"

namespace ascend_sim {

struct ReluLane {
    template <class T>
    T operator()(T a, bool&) const {
        T zero = T(0);
        return a > zero ? a : zero;
    }
};
struct AbsLane {
    template <class T>
    T operator()(T a, bool&) const {
        return T(std::fabs(float(a)));
    }
};
struct ExpLane {
    template <class T>
    T operator()(T a, bool&) const {
        return T(std::exp(float(a)));
    }
};
struct LnLane {
    template <class T>
    T operator()(T a, bool&) const {
        return T(std::log(float(a)));
    }
};
struct SqrtLane {
    template <class T>
    T operator()(T a, bool&) const {
        return T(std::sqrt(float(a)));
    }
};
struct RsqrtLane {
    template <class T>
    T operator()(T a, bool&) const {
        return T(1.0f / std::sqrt(float(a)));
    }
};
struct ReciprocalLane {
    template <class T>
    T operator()(T a, bool&) const {
        return T(1.0f / float(a));
    }
};
struct NotLane {
    template <class T>
    T operator()(T a, bool&) const {
        return static_cast<T>(~a);
    }
};

}  // namespace ascend_sim

namespace AscendC {

struct UnaryRepeatParams {
    UnaryRepeatParams() = default;
    UnaryRepeatParams(ascend_sim::CheckedField<uint16_t> dstBlk, ascend_sim::CheckedField<uint16_t> srcBlk,
                      ascend_sim::CheckedField<uint8_t> dstRep, ascend_sim::CheckedField<uint8_t> srcRep)
        : dstBlkStride(dstBlk), srcBlkStride(srcBlk), dstRepStride(dstRep), srcRepStride(srcRep) {}

    // In 32-byte blocks: block to block within a repeat, repeat to repeat.
    ascend_sim::CheckedField<uint16_t> dstBlkStride = 1;
    ascend_sim::CheckedField<uint16_t> srcBlkStride = 1;
    ascend_sim::CheckedField<uint8_t> dstRepStride = 8;
    ascend_sim::CheckedField<uint8_t> srcRepStride = 8;
};

namespace detail {

inline ascend_sim::Stride CheckedStride(const Call& call, const char* side, int64_t block, int64_t repeat) {
    if (block < 0 || block > 65535 || repeat < 0 || repeat > 255) {
        ascend_sim::Fail(call, ascend_sim::Pipe::V, "range.stride",
                         "%s strides are %lld and %lld blocks; expected a block stride of 0..65535 and a repeat stride "
                         "of 0..255",
                         side, static_cast<long long>(block), static_cast<long long>(repeat));
    }
    return {static_cast<uint32_t>(block), static_cast<uint32_t>(repeat)};
}
inline ascend_sim::Stride DstStride(const Call& call, const UnaryRepeatParams& params) {
    return CheckedStride(call, "dst", params.dstBlkStride.wide(), params.dstRepStride.wide());
}
inline ascend_sim::Stride SrcStride(const Call& call, const UnaryRepeatParams& params) {
    return CheckedStride(call, "src", params.srcBlkStride.wide(), params.srcRepStride.wide());
}

}  // namespace detail

template <class T, bool isSetMask = true>
void Relu(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count,
          CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int32_t, half, float>, "Relu: the device computes int32_t, half, float only");
    ascend_sim::UnaryLanes("Relu", site, ascend_sim::CountedLanes(Call{"Relu", site}, count, isSetMask), dst, src, {},
                           {}, ascend_sim::FullRate<T>(), ascend_sim::ReluLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Relu(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask,
                                             const uint8_t repeat, const UnaryRepeatParams& params,
                                             CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int32_t, half, float>, "Relu: the device computes int32_t, half, float only");
    const Call call{"Relu", site};
    ascend_sim::UnaryLanes("Relu", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           ascend_sim::ReluLane{});
}

template <class T, bool isSetMask = true>
void Abs(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Abs: the device computes half, float only");
    ascend_sim::UnaryLanes("Abs", site, ascend_sim::CountedLanes(Call{"Abs", site}, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>(), ascend_sim::AbsLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Abs(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask,
                                            const uint8_t repeat, const UnaryRepeatParams& params,
                                            CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Abs: the device computes half, float only");
    const Call call{"Abs", site};
    ascend_sim::UnaryLanes("Abs", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           ascend_sim::AbsLane{});
}

template <class T, bool isSetMask = true>
void Exp(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Exp: the device computes half, float only");
    ascend_sim::UnaryLanes("Exp", site, ascend_sim::CountedLanes(Call{"Exp", site}, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>() / 4, ascend_sim::ExpLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Exp(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask,
                                            const uint8_t repeat, const UnaryRepeatParams& params,
                                            CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Exp: the device computes half, float only");
    const Call call{"Exp", site};
    ascend_sim::UnaryLanes("Exp", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params),
                           ascend_sim::FullRate<T>() / 4, ascend_sim::ExpLane{});
}

template <class T, bool isSetMask = true>
void Ln(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Ln: the device computes half, float only");
    ascend_sim::UnaryLanes("Ln", site, ascend_sim::CountedLanes(Call{"Ln", site}, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>() / 4, ascend_sim::LnLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Ln(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask,
                                           const uint8_t repeat, const UnaryRepeatParams& params,
                                           CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Ln: the device computes half, float only");
    const Call call{"Ln", site};
    ascend_sim::UnaryLanes("Ln", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params),
                           ascend_sim::FullRate<T>() / 4, ascend_sim::LnLane{});
}

template <class T, bool isSetMask = true>
void Sqrt(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count,
          CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Sqrt: the device computes half, float only");
    ascend_sim::UnaryLanes("Sqrt", site, ascend_sim::CountedLanes(Call{"Sqrt", site}, count, isSetMask), dst, src, {},
                           {}, ascend_sim::FullRate<T>() / 4, ascend_sim::SqrtLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Sqrt(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask,
                                             const uint8_t repeat, const UnaryRepeatParams& params,
                                             CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Sqrt: the device computes half, float only");
    const Call call{"Sqrt", site};
    ascend_sim::UnaryLanes("Sqrt", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params),
                           ascend_sim::FullRate<T>() / 4, ascend_sim::SqrtLane{});
}

template <class T, bool isSetMask = true>
void Rsqrt(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count,
           CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Rsqrt: the device computes half, float only");
    ascend_sim::UnaryLanes("Rsqrt", site, ascend_sim::CountedLanes(Call{"Rsqrt", site}, count, isSetMask), dst, src, {},
                           {}, ascend_sim::FullRate<T>() / 4, ascend_sim::RsqrtLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Rsqrt(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask,
                                              const uint8_t repeat, const UnaryRepeatParams& params,
                                              CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Rsqrt: the device computes half, float only");
    const Call call{"Rsqrt", site};
    ascend_sim::UnaryLanes("Rsqrt", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params),
                           ascend_sim::FullRate<T>() / 4, ascend_sim::RsqrtLane{});
}

template <class T, bool isSetMask = true>
void Reciprocal(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count,
                CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Reciprocal: the device computes half, float only");
    ascend_sim::UnaryLanes("Reciprocal", site, ascend_sim::CountedLanes(Call{"Reciprocal", site}, count, isSetMask),
                           dst, src, {}, {}, ascend_sim::FullRate<T>() / 4, ascend_sim::ReciprocalLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Reciprocal(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                                   const Mask& mask, const uint8_t repeat,
                                                   const UnaryRepeatParams& params, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Reciprocal: the device computes half, float only");
    const Call call{"Reciprocal", site};
    ascend_sim::UnaryLanes("Reciprocal", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params),
                           ascend_sim::FullRate<T>() / 4, ascend_sim::ReciprocalLane{});
}

template <class T, bool isSetMask = true>
void Not(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t>, "Not: the device computes int16_t, uint16_t only");
    ascend_sim::UnaryLanes("Not", site, ascend_sim::CountedLanes(Call{"Not", site}, count, isSetMask), dst, src, {}, {},
                           ascend_sim::FullRate<T>(), ascend_sim::NotLane{});
}
template <class T, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Not(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask,
                                            const uint8_t repeat, const UnaryRepeatParams& params,
                                            CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t>, "Not: the device computes int16_t, uint16_t only");
    const Call call{"Not", site};
    ascend_sim::UnaryLanes("Not", site, detail::LanesOf<T>(call, mask, repeat, isSetMask), dst, src,
                           detail::DstStride(call, params), detail::SrcStride(call, params), ascend_sim::FullRate<T>(),
                           ascend_sim::NotLane{});
}

}  // namespace AscendC
