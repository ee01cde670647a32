// Conversion of whole tiles between float32, float16 and bfloat16 on the vector pipe. Values that come from tables of
// sines and cosines are finite, so the device's saturation setting for half types does not matter.
#pragma once

#include "device/pipes.h"
#include "kernel_operator.h"

namespace dsv4::kernel {

template <typename A, typename B>
struct SameType {
    static constexpr bool value = false;
};
template <typename A>
struct SameType<A, A> {
    static constexpr bool value = true;
};
template <typename A, typename B>
inline constexpr bool kSameType = SameType<A, B>::value;

template <typename T>
inline constexpr bool kIsFloat = kSameType<T, float>;

// Quiet NaN in every element, written as bits: a Cast may turn NaN into 0.
template <typename T>
__aicore__ inline void fill_nan(const AscendC::LocalTensor<T>& tile, int32_t elems) {
    if constexpr (kIsFloat<T>) {
        AscendC::Duplicate(tile.template ReinterpretCast<uint32_t>(), uint32_t{0x7fc00000u}, elems);
    } else {
        // 0x7fff is a NaN of both 16-bit types.
        AscendC::Duplicate(tile.template ReinterpretCast<uint16_t>(), uint16_t{0x7fffu}, elems);
    }
}

// target[i] = source at byte base + offsets[i], moved as bits: the device gathers integers of every toolkit version.
// elems < 16384: the count of repeats wraps beyond.
template <typename T>
__aicore__ inline void gather_elements(const AscendC::LocalTensor<T>& target, const AscendC::LocalTensor<T>& source,
                                       const AscendC::LocalTensor<uint32_t>& offsets, uint32_t base, uint32_t elems) {
    if constexpr (kIsFloat<T>) {
        AscendC::Gather(target.template ReinterpretCast<uint32_t>(), source.template ReinterpretCast<uint32_t>(),
                        offsets, base, elems);
    } else {
        AscendC::Gather(target.template ReinterpretCast<uint16_t>(), source.template ReinterpretCast<uint16_t>(),
                        offsets, base, elems);
    }
}

// Whether convert() below needs a float32 tile between source and target.
template <typename in_t, typename out_t>
inline constexpr bool kConvertsThroughFloat = !kIsFloat<in_t> && !kIsFloat<out_t>;

// target = +-source, element by element. `between` is a float32 tile, used where kConvertsThroughFloat says so.
template <typename in_t, typename out_t>
__aicore__ inline void convert(const AscendC::LocalTensor<out_t>& target, const AscendC::LocalTensor<in_t>& source,
                               const AscendC::LocalTensor<float>& between, uint32_t elems, bool negate) {
    using AscendC::RoundMode;
    const int32_t count = static_cast<int32_t>(elems);
    if constexpr (kIsFloat<out_t>) {
        if constexpr (kIsFloat<in_t>) {
            AscendC::Muls(target, source, negate ? -1.0f : 1.0f, count);
            return;
        } else {
            AscendC::Cast(target, source, RoundMode::CAST_NONE, elems);
        }
        if (negate) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Muls(target, target, -1.0f, count);
        }
    } else if constexpr (kIsFloat<in_t>) {
        if (negate) {
            AscendC::Muls(source, source, -1.0f, count);
            AscendC::PipeBarrier<PIPE_V>();
        }
        AscendC::Cast(target, source, RoundMode::CAST_RINT, elems);
    } else {
        AscendC::Cast(between, source, RoundMode::CAST_NONE, elems);
        AscendC::PipeBarrier<PIPE_V>();
        if (negate) {
            AscendC::Muls(between, between, -1.0f, count);
            AscendC::PipeBarrier<PIPE_V>();
        }
        AscendC::Cast(target, between, RoundMode::CAST_RINT, elems);
    }
}

}  // namespace dsv4::kernel
