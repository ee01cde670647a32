// Small scalar helpers.
#pragma once

#include <cstdint>
#include <type_traits>

namespace AscendC {

template <class T, class U>
struct IsSameType : std::is_same<T, U> {};

template <int CountValue>
int64_t ScalarGetCountOfValue(uint64_t value) {
    static_assert(CountValue == 0 || CountValue == 1, "counts zero bits or one bits");
    const int64_t ones = __builtin_popcountll(value);
    return CountValue == 1 ? ones : 64 - ones;
}
inline int64_t ScalarCountLeadingZero(uint64_t value) { return value == 0 ? 64 : __builtin_clzll(value); }
// Position of the lowest bit that equals CountValue, -1 if there is none.
template <int CountValue>
int64_t ScalarGetSFFValue(uint64_t value) {
    const uint64_t bits = CountValue == 1 ? value : ~value;
    return bits == 0 ? -1 : __builtin_ctzll(bits);
}

constexpr uint32_t AlignUp(uint32_t value, uint32_t multiple) {
    return multiple == 0 ? 0 : (value + multiple - 1) / multiple * multiple;
}
constexpr uint32_t DivCeil(uint32_t a, uint32_t b) { return b == 0 ? 0 : (a + b - 1) / b; }

}  // namespace AscendC

#ifndef likely
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)
#endif

// Scalar minimum and maximum are built into the device compiler.
template <class T>
constexpr T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
    return a < b ? b : a;
}
