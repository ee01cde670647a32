// Cast between tensors: the combinations of types and rounding modes that the device implements, and no others.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "ascend_sim/vector_unary.h"

namespace ascend_sim {

constexpr uint32_t ModeBit(AscendC::RoundMode mode) { return 1u << static_cast<uint32_t>(mode); }

constexpr uint32_t kModeNone = ModeBit(AscendC::RoundMode::CAST_NONE);
constexpr uint32_t kModeOdd = ModeBit(AscendC::RoundMode::CAST_ODD);
constexpr uint32_t kModeDirected = ModeBit(AscendC::RoundMode::CAST_RINT) | ModeBit(AscendC::RoundMode::CAST_FLOOR) |
                                   ModeBit(AscendC::RoundMode::CAST_CEIL) | ModeBit(AscendC::RoundMode::CAST_ROUND) |
                                   ModeBit(AscendC::RoundMode::CAST_TRUNC);

// Allowed modes of Cast<Dst, Src>; 0: the device has no such instruction.
template <class Dst, class Src>
constexpr uint32_t CastModes() {
    const auto is = [](auto dst, auto src) {
        return std::is_same_v<Dst, decltype(dst)> && std::is_same_v<Src, decltype(src)>;
    };
    if (is(int64_t{}, int32_t{}) || is(int32_t{}, int64_t{}) || is(int16_t{}, int32_t{}) || is(float{}, int16_t{}) ||
        is(float{}, half{}) || is(float{}, bfloat16_t{})) {
        return kModeNone;
    }
    if (is(float{}, int32_t{}) || is(half{}, int16_t{})) {
        return kModeNone | kModeDirected;
    }
    if (is(int32_t{}, float{}) || is(int64_t{}, float{}) || is(float{}, int64_t{}) || is(bfloat16_t{}, float{}) ||
        is(int16_t{}, float{}) || is(int32_t{}, half{}) || is(int16_t{}, half{}) || is(int32_t{}, bfloat16_t{}) ||
        is(float{}, float{})) {
        return kModeDirected;
    }
    if (is(half{}, float{})) {
        return kModeNone | kModeDirected | kModeOdd;
    }
    if (is(half{}, int32_t{})) {
        return kModeNone | kModeDirected | kModeOdd;  // ignored: the scale decides
    }
    if (is(half{}, uint8_t{}) || is(half{}, int8_t{})) {
        return kModeNone;
    }
    if (is(uint8_t{}, half{}) || is(int8_t{}, half{})) {
        return kModeNone | kModeDirected;
    }
    return 0;
}

// A finite double is exact for every source type here except large int64, which is handled as an integer.
template <class T>
float SourceFloat(T value) {
    if constexpr (std::is_same_v<T, bfloat16_t>) {
        return AscendC::ToFloat(value);
    } else {
        return float(value);
    }
}

// Saturates as the device does and says so: out of range and NaN set `odd`.
template <class Dst>
Dst FloatToInteger(float value, AscendC::RoundMode mode, bool& odd) {
    if (std::isnan(value)) {
        odd = true;
        return 0;
    }
    const uint32_t bits = BitsOf(value);
    const bool negative = (bits >> 31) != 0;
    const int exponent = static_cast<int>((bits >> 23) & 0xff);
    const uint64_t significand = (bits & 0x7fffffu) | (exponent == 0 ? 0u : 0x800000u);
    const int shift = 150 - (exponent == 0 ? 1 : exponent);
    constexpr uint64_t kMost = static_cast<uint64_t>(std::numeric_limits<Dst>::max());
    const uint64_t limit = kMost + (negative && std::is_signed_v<Dst> ? 1 : 0);
    const bool huge = shift < -39;
    const uint64_t magnitude = huge ? ~uint64_t{0} : RoundShift(significand, shift, negative, mode);
    if (magnitude > limit || (negative && !std::is_signed_v<Dst> && magnitude != 0)) {
        odd = true;
        return negative ? std::numeric_limits<Dst>::min() : std::numeric_limits<Dst>::max();
    }
    return static_cast<Dst>(negative ? ~magnitude + 1 : magnitude);
}

inline float IntegerToFloat(int64_t value, AscendC::RoundMode mode) {
    const bool negative = value < 0;
    uint64_t magnitude = negative ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
    int shift = 0;
    while (magnitude >> shift >= (uint64_t{1} << 24)) {
        ++shift;
    }
    magnitude = RoundShift(magnitude, shift, negative, mode);
    const float result = std::ldexp(static_cast<float>(magnitude), shift);
    return negative ? -result : result;
}

inline float RoundToIntegral(float value, AscendC::RoundMode mode) {
    if (!(std::fabs(value) < 8388608.0f)) {
        return value;
    }
    bool odd = false;
    return static_cast<float>(FloatToInteger<int32_t>(value, mode, odd));
}

// One lane. `odd`: the value did not fit the target type.
template <class Dst, class Src>
Dst CastLane(Src value, AscendC::RoundMode mode, bool& odd) {
    if constexpr (std::is_integral_v<Dst> && std::is_integral_v<Src>) {
        if (static_cast<int64_t>(value) > static_cast<int64_t>(std::numeric_limits<Dst>::max())) {
            odd = true;
            return std::numeric_limits<Dst>::max();
        }
        if (static_cast<int64_t>(value) < static_cast<int64_t>(std::numeric_limits<Dst>::min())) {
            odd = true;
            return std::numeric_limits<Dst>::min();
        }
        return static_cast<Dst>(value);
    } else if constexpr (std::is_integral_v<Dst>) {
        return FloatToInteger<Dst>(SourceFloat(value), mode, odd);
    } else if constexpr (std::is_integral_v<Src>) {
        if constexpr (std::is_same_v<Dst, half>) {
            return half::FromBits(NarrowFloat<5, 10>(static_cast<float>(value), mode));
        } else {
            return Dst(IntegerToFloat(static_cast<int64_t>(value), mode));
        }
    } else if constexpr (std::is_same_v<Dst, half>) {
        return half::FromBits(NarrowFloat<5, 10>(SourceFloat(value), mode));
    } else if constexpr (std::is_same_v<Dst, bfloat16_t>) {
        return bfloat16_t::FromBits(NarrowFloat<8, 7>(SourceFloat(value), mode));
    } else if constexpr (std::is_same_v<Src, float>) {
        // Rounding to an integral float loses the sign of zero on the device.
        return RoundToIntegral(value, mode) + 0.0f;
    } else {
        return SourceFloat(value);
    }
}

template <class Dst, class Src>
constexpr double CastRate() {
    return sizeof(Dst) == 8 || sizeof(Src) == 8 ? 32.0 : 64.0;
}

// The factor of Cast from int32_t to half.
void SetDequantScale(const Call& call, float scale);
float DequantScale(const Call& call);

template <class Dst, class Src>
void CastLanes(CallSite site, const Lanes& lanes, const AscendC::LocalTensor<Dst>& dst,
               const AscendC::LocalTensor<Src>& src, AscendC::RoundMode mode, Stride dst_stride, Stride src_stride) {
    static_assert(CastModes<Dst, Src>() != 0, "Cast: the device does not convert between these types");
    if ((CastModes<Dst, Src>() & ModeBit(mode)) == 0) {
        Fail(Call{"Cast", site}, Pipe::V, "cast.mode",
             "rounding mode %d is not implemented for these types: the device would do nothing; expected one of the "
             "bits 0x%02x (bit 0 CAST_NONE, 1 RINT, 2 FLOOR, 3 CEIL, 4 ROUND, 5 TRUNC, 6 ODD)",
             static_cast<int>(mode), CastModes<Dst, Src>());
    }
    if (lanes.Empty()) {
        return NoteNop(Call{"Cast", site}, Pipe::V);
    }
    LaneOp op("Cast", site, lanes, sizeof(Dst) > sizeof(Src) ? sizeof(Dst) : sizeof(Src));
    const Src* in = op.In("src", src, src_stride);
    Dst* out = op.Out("dst", dst, dst_stride);
    op.Issue(CastRate<Dst, Src>());
    constexpr bool kScaled = std::is_same_v<Dst, half> && std::is_same_v<Src, int32_t>;
    float scale = 1;
    if constexpr (kScaled) {
        scale = DequantScale(op.call());
    }
    LaneTrouble range;
    LaneTrouble special;
    for (uint32_t i = 0; i < op.count(); ++i) {
        bool odd = false;
        Dst value;
        if constexpr (kScaled) {
            value = half(static_cast<float>(in[i]) * scale);
        } else {
            value = CastLane<Dst, Src>(in[i], mode, odd);
        }
        out[i] = value;
        if (odd) {
            range.Note(op, i);
        }
        if (NeedsAttention(value, false)) {
            special.Note(op, i);
        }
    }
    if (range.hit()) {
        Complain(op.call(), Pipe::V, "cast.range",
                 "lane %u does not fit the target type, the device saturates; expected a value in range", range.lane());
    }
    ReportTrouble(op, special, out);
    op.Finish();
}

}  // namespace ascend_sim

namespace AscendC {

template <class Dst, class Src>
void Cast(const LocalTensor<Dst>& dst, const LocalTensor<Src>& src, const RoundMode& mode, const uint32_t count,
          CallSite site = CallSite::Here()) {
    ascend_sim::CastLanes(site, ascend_sim::CountedLanes(Call{"Cast", site}, count, true), dst, src, mode, {}, {});
}
template <class Dst, class Src, bool isSetMask = true, class Mask>
std::enable_if_t<detail::kIsMask<Mask>> Cast(const LocalTensor<Dst>& dst, const LocalTensor<Src>& src,
                                             const RoundMode& mode, const Mask& mask, const uint8_t repeat,
                                             const UnaryRepeatParams& params, CallSite site = CallSite::Here()) {
    const Call call{"Cast", site};
    using Wider = std::conditional_t<(sizeof(Dst) > sizeof(Src)), Dst, Src>;
    ascend_sim::CastLanes(site, detail::LanesOf<Wider>(call, mask, repeat, isSetMask), dst, src, mode,
                          detail::DstStride(call, params), detail::SrcStride(call, params));
}

// What Cast from int32_t to half multiplies by.
inline void SetDeqScale(half scale, CallSite site = CallSite::Here()) {
    ascend_sim::SetDequantScale(Call{"SetDeqScale", site}, float(scale));
}

// Conversion of one scalar on the scalar unit.
template <class Src, class Dst, RoundMode Mode>
Dst ScalarCast(Src value) {
    static_assert(ascend_sim::kOneOf<Src, float> && ascend_sim::kOneOf<Dst, int32_t, half>,
                  "ScalarCast: float to int32_t or half only");
    bool odd = false;
    return ascend_sim::CastLane<Dst, Src>(value, Mode, odd);
}

}  // namespace AscendC
