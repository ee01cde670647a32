// half and bfloat16_t as kernels see them: 2-byte values that convert to and from float.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ascend_sim/float_bits.h"

struct half {
    uint16_t bits;

    half() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    half(T value) : bits(ascend_sim::NarrowFloat<5, 10>(static_cast<float>(value), AscendC::RoundMode::CAST_RINT)) {}
    operator float() const { return ascend_sim::WidenHalf(bits); }
    half& operator+=(half other) { return *this = half(float(*this) + float(other)); }
    half& operator-=(half other) { return *this = half(float(*this) - float(other)); }
    half& operator*=(half other) { return *this = half(float(*this) * float(other)); }

    static half FromBits(uint16_t bits) {
        half value;
        value.bits = bits;
        return value;
    }
};

// The device has no scalar arithmetic on it: go through ToFloat and ToBfloat16.
struct bfloat16_t {
    uint16_t bits;

    bfloat16_t() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    bfloat16_t(T value)
        : bits(ascend_sim::NarrowFloat<8, 7>(static_cast<float>(value), AscendC::RoundMode::CAST_RINT)) {}

    static bfloat16_t FromBits(uint16_t bits) {
        bfloat16_t value;
        value.bits = bits;
        return value;
    }
};

namespace AscendC {

inline float ToFloat(const bfloat16_t& value) { return ascend_sim::FloatOf(static_cast<uint32_t>(value.bits) << 16); }
inline bfloat16_t ToBfloat16(const float& value) { return bfloat16_t(value); }

}  // namespace AscendC
