// Rounding of binary floating formats done on integers, so that every mode is exact on every host.
#pragma once

#include <cstdint>
#include <cstring>

#include "ascend_sim/types.h"

namespace ascend_sim {

inline uint32_t BitsOf(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

inline float FloatOf(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

// magnitude / 2^shift as an integer, rounded as the mode says; `negative` matters to FLOOR and CEIL only.
inline uint64_t RoundShift(uint64_t magnitude, int shift, bool negative, AscendC::RoundMode mode) {
    using AscendC::RoundMode;
    if (shift <= 0) {
        return magnitude << -shift;
    }
    if (shift > 63) {
        magnitude = magnitude != 0 ? 1 : 0;
        shift = 2;
    }
    const uint64_t kept = magnitude >> shift;
    const uint64_t rest = magnitude & ((uint64_t{1} << shift) - 1);
    const uint64_t half = uint64_t{1} << (shift - 1);
    bool up = false;
    switch (mode) {
        case RoundMode::CAST_NONE:
        case RoundMode::CAST_RINT:
            up = rest > half || (rest == half && (kept & 1) != 0);
            break;
        case RoundMode::CAST_FLOOR:
            up = negative && rest != 0;
            break;
        case RoundMode::CAST_CEIL:
            up = !negative && rest != 0;
            break;
        case RoundMode::CAST_ROUND:
            up = rest >= half;
            break;
        case RoundMode::CAST_TRUNC:
            break;
        case RoundMode::CAST_ODD:
            return rest != 0 ? (kept | 1) : kept;
    }
    return kept + (up ? 1 : 0);
}

// IEEE binary32 to a 16-bit format with `ExpBits` exponent and `ManBits` mantissa bits. A NaN stays a quiet NaN.
template <int ExpBits, int ManBits>
uint16_t NarrowFloat(float value, AscendC::RoundMode mode) {
    const uint32_t bits = BitsOf(value);
    const uint16_t sign = static_cast<uint16_t>((bits >> 31) << 15);
    const bool negative = sign != 0;
    const int exponent = static_cast<int>((bits >> 23) & 0xff);
    const uint32_t mantissa = bits & 0x7fffffu;
    constexpr int kMaxExp = (1 << ExpBits) - 1;
    constexpr uint16_t kInf = static_cast<uint16_t>(kMaxExp << ManBits);
    if (exponent == 0xff) {
        const uint16_t quiet = static_cast<uint16_t>(kInf | (1 << (ManBits - 1)));
        return static_cast<uint16_t>(sign | (mantissa != 0 ? quiet : kInf));
    }
    if (exponent == 0 && mantissa == 0) {
        return sign;
    }
    const uint64_t significand = exponent == 0 ? mantissa : (mantissa | 0x800000u);
    constexpr int kBias = (1 << (ExpBits - 1)) - 1;
    int target = (exponent == 0 ? 1 : exponent) - 127 + kBias;  // exponent of a 24-bit significand with its top bit set
    int shift = 23 - ManBits;
    if (target < 1) {
        shift += 1 - target;
        target = 1;
    }
    const uint64_t rounded = RoundShift(significand, shift, negative, mode);
    // A carry out of the mantissa moves into the exponent by plain addition; a subnormal has implicit exponent 0.
    const uint64_t packed = (static_cast<uint64_t>(target - 1) << ManBits) + rounded;
    if (packed >= kInf) {
        const bool to_finite = mode == AscendC::RoundMode::CAST_TRUNC || mode == AscendC::RoundMode::CAST_ODD ||
                               (mode == AscendC::RoundMode::CAST_FLOOR && !negative) ||
                               (mode == AscendC::RoundMode::CAST_CEIL && negative);
        return static_cast<uint16_t>(sign | (to_finite ? kInf - 1 : kInf));
    }
    return static_cast<uint16_t>(sign | packed);
}

inline float WidenHalf(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) {
        return FloatOf(sign | 0x7f800000u | (mantissa << 13));
    }
    if (exponent != 0) {
        return FloatOf(sign | ((exponent + 112) << 23) | (mantissa << 13));
    }
    const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24, exact
    return FloatOf(sign | BitsOf(magnitude));
}

}  // namespace ascend_sim
