// Integer arithmetic shared by host and device code.
#pragma once

#include "common/portable.h"

namespace dsv4 {

template <typename T>
DSV4_HOST_DEVICE constexpr T min_of(T a, T b) {
    return a < b ? a : b;
}

template <typename T>
DSV4_HOST_DEVICE constexpr T max_of(T a, T b) {
    return a < b ? b : a;
}

// Both for a >= 0 and b > 0.
template <typename T>
DSV4_HOST_DEVICE constexpr T ceil_div(T a, T b) {
    return (a + b - 1) / b;
}

template <typename T>
DSV4_HOST_DEVICE constexpr T round_up(T a, T b) {
    return ceil_div(a, b) * b;
}

DSV4_HOST_DEVICE constexpr bool is_power_of_two(int64_t v) {
    return v > 0 && (v & (v - 1)) == 0;
}

// log2 of a power of two. Page arithmetic uses shifts: the device has no vector division and a slow scalar one.
DSV4_HOST_DEVICE constexpr int32_t log2_of(int64_t power_of_two) {
    int32_t shift = 0;
    while ((int64_t{1} << shift) < power_of_two) {
        ++shift;
    }
    return shift;
}

}  // namespace dsv4
