// DataCopy and DataCopyPad: GM to UB (MTE2), UB to GM (MTE3), UB to UB (V).
#pragma once

#include <cstdint>

#include "ascend_sim/checked_field.h"
#include "ascend_sim/copy_engine.h"
#include "ascend_sim/tensor.h"

namespace AscendC {

// All four in 32-byte blocks (DataCopy); DataCopyPad takes blockLen in bytes. Strides are gaps.
struct DataCopyParams {
    DataCopyParams() = default;
    DataCopyParams(ascend_sim::CheckedField<uint16_t> count, ascend_sim::CheckedField<uint16_t> len,
                   ascend_sim::CheckedField<uint16_t> srcGap, ascend_sim::CheckedField<uint16_t> dstGap)
        : blockCount(count), blockLen(len), srcStride(srcGap), dstStride(dstGap) {}

    ascend_sim::CheckedField<uint16_t> blockCount = 1;
    ascend_sim::CheckedField<uint16_t> blockLen = 0;
    ascend_sim::CheckedField<uint16_t> srcStride = 0;
    ascend_sim::CheckedField<uint16_t> dstStride = 0;
};

// blockLen in bytes; a stride is a gap: bytes on the global side, 32-byte blocks on the UB side.
struct DataCopyExtParams {
    DataCopyExtParams() = default;
    DataCopyExtParams(ascend_sim::CheckedField<uint16_t> count, ascend_sim::CheckedField<uint32_t> len,
                      ascend_sim::CheckedField<uint32_t> srcGap, ascend_sim::CheckedField<uint32_t> dstGap,
                      ascend_sim::CheckedField<uint32_t> reserved)
        : blockCount(count), blockLen(len), srcStride(srcGap), dstStride(dstGap), rsv(reserved) {}

    ascend_sim::CheckedField<uint16_t> blockCount = 1;
    ascend_sim::CheckedField<uint32_t> blockLen = 0;
    ascend_sim::CheckedField<uint32_t> srcStride = 0;
    ascend_sim::CheckedField<uint32_t> dstStride = 0;
    ascend_sim::CheckedField<uint32_t> rsv = 0;
};

struct DataCopyPadParams {
    DataCopyPadParams() = default;
    DataCopyPadParams(bool pad, ascend_sim::CheckedField<uint8_t> left, ascend_sim::CheckedField<uint8_t> right,
                      uint64_t value)
        : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}

    bool isPad = false;
    ascend_sim::CheckedField<uint8_t> leftPadding = 0;   // elements
    ascend_sim::CheckedField<uint8_t> rightPadding = 0;  // elements
    uint64_t paddingValue = 0;
};

template <class T>
struct DataCopyPadExtParams {
    DataCopyPadExtParams() = default;
    DataCopyPadExtParams(bool pad, ascend_sim::CheckedField<uint8_t> left, ascend_sim::CheckedField<uint8_t> right,
                         T value)
        : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}

    bool isPad = false;
    ascend_sim::CheckedField<uint8_t> leftPadding = 0;   // elements
    ascend_sim::CheckedField<uint8_t> rightPadding = 0;  // elements
    T paddingValue = T(0);
};

namespace detail {

template <class T>
inline constexpr bool kAtomic = ascend_sim::kOneOf<T, float, half, bfloat16_t, int32_t, int16_t, int8_t>;

inline ascend_sim::AlignedCopy AlignedOf(const DataCopyParams& params) {
    return {params.blockCount.wide(), params.blockLen.wide(), params.srcStride.wide(), params.dstStride.wide()};
}
template <class T>
ascend_sim::AlignedCopy AlignedOf(const Call& call, ascend_sim::Pipe pipe, uint32_t count) {
    if (uint64_t{count} * sizeof(T) % 32 != 0) {
        ascend_sim::Fail(call, pipe, "copy.tail",
                         "%u elements are %llu bytes; expected a multiple of 32, the device drops the tail", count,
                         static_cast<unsigned long long>(uint64_t{count} * sizeof(T)));
    }
    return {1, static_cast<int64_t>(uint64_t{count} * sizeof(T) / 32), 0, 0};
}
template <class T>
ascend_sim::ElementKind KindOf() {
    if constexpr (std::is_same_v<T, float>) {
        return ascend_sim::ElementKind::Float;
    } else if constexpr (std::is_same_v<T, half>) {
        return ascend_sim::ElementKind::Half;
    } else if constexpr (std::is_same_v<T, bfloat16_t>) {
        return ascend_sim::ElementKind::Bfloat16;
    } else if constexpr (std::is_same_v<T, int32_t>) {
        return ascend_sim::ElementKind::Int32;
    } else if constexpr (std::is_same_v<T, int16_t>) {
        return ascend_sim::ElementKind::Int16;
    } else if constexpr (std::is_same_v<T, int8_t>) {
        return ascend_sim::ElementKind::Int8;
    } else {
        return ascend_sim::ElementKind::Other;
    }
}

}  // namespace detail

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const uint32_t count,
              CallSite site = CallSite::Here()) {
    const Call call{"DataCopy", site};
    ascend_sim::CopyIn(call, dst.view(), src.view(), sizeof(T),
                       detail::AlignedOf<T>(call, ascend_sim::Pipe::Mte2, count));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params,
              CallSite site = CallSite::Here()) {
    ascend_sim::CopyIn(Call{"DataCopy", site}, dst.view(), src.view(), sizeof(T), detail::AlignedOf(params));
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count,
              CallSite site = CallSite::Here()) {
    const Call call{"DataCopy", site};
    ascend_sim::CopyOut(call, dst.view(), src.view(), detail::KindOf<T>(), sizeof(T),
                        detail::AlignedOf<T>(call, ascend_sim::Pipe::Mte3, count));
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params,
              CallSite site = CallSite::Here()) {
    ascend_sim::CopyOut(Call{"DataCopy", site}, dst.view(), src.view(), detail::KindOf<T>(), sizeof(T),
                        detail::AlignedOf(params));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count,
              CallSite site = CallSite::Here()) {
    const Call call{"DataCopy", site};
    ascend_sim::CopyWithin(call, dst.view(), src.view(), sizeof(T),
                           detail::AlignedOf<T>(call, ascend_sim::Pipe::V, count));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params,
              CallSite site = CallSite::Here()) {
    ascend_sim::CopyWithin(Call{"DataCopy", site}, dst.view(), src.view(), sizeof(T), detail::AlignedOf(params));
}

template <class T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& params,
                 const DataCopyPadExtParams<T>& pad, CallSite site = CallSite::Here()) {
    const ascend_sim::PaddedCopy copy{params.blockCount.wide(), params.blockLen.wide(), params.srcStride.wide(),
                                      params.dstStride.wide(), 2097151};
    ascend_sim::Padding padding{pad.isPad, pad.leftPadding.wide(), pad.rightPadding.wide(), {}};
    std::memcpy(padding.value, &pad.paddingValue, sizeof(T));
    ascend_sim::CopyInPadded(Call{"DataCopyPad", site}, dst.view(), src.view(), sizeof(T), copy, padding);
}
template <class T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& params,
                 CallSite site = CallSite::Here()) {
    const ascend_sim::PaddedCopy copy{params.blockCount.wide(), params.blockLen.wide(), params.srcStride.wide(),
                                      params.dstStride.wide(), 2097151};
    ascend_sim::CopyOutPadded(Call{"DataCopyPad", site}, dst.view(), src.view(), detail::KindOf<T>(), sizeof(T), copy);
}
// The older forms count blockLen in uint16 bytes.
template <class T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params,
                 const DataCopyPadParams& pad, CallSite site = CallSite::Here()) {
    const ascend_sim::PaddedCopy copy{params.blockCount.wide(), params.blockLen.wide(), params.srcStride.wide(),
                                      params.dstStride.wide(), 65535};
    ascend_sim::Padding padding{pad.isPad, pad.leftPadding.wide(), pad.rightPadding.wide(), {}};
    std::memcpy(padding.value, &pad.paddingValue, sizeof(T));
    ascend_sim::CopyInPadded(Call{"DataCopyPad", site}, dst.view(), src.view(), sizeof(T), copy, padding);
}
template <class T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params,
                 CallSite site = CallSite::Here()) {
    const ascend_sim::PaddedCopy copy{params.blockCount.wide(), params.blockLen.wide(), params.srcStride.wide(),
                                      params.dstStride.wide(), 65535};
    ascend_sim::CopyOutPadded(Call{"DataCopyPad", site}, dst.view(), src.view(), detail::KindOf<T>(), sizeof(T), copy);
}

// Atomic modes of the copies that follow, until SetAtomicNone.
template <class T>
void SetAtomicAdd(CallSite site = CallSite::Here()) {
    static_assert(detail::kAtomic<T>, "SetAtomicAdd: float, half, bfloat16_t, int32_t, int16_t, int8_t only");
    ascend_sim::SetAtomic(Call{"SetAtomicAdd", site}, ascend_sim::AtomicMode::Add, detail::KindOf<T>());
}
template <class T>
void SetAtomicMax(CallSite site = CallSite::Here()) {
    static_assert(detail::kAtomic<T>, "SetAtomicMax: float, half, bfloat16_t, int32_t, int16_t, int8_t only");
    ascend_sim::SetAtomic(Call{"SetAtomicMax", site}, ascend_sim::AtomicMode::Max, detail::KindOf<T>());
}
template <class T>
void SetAtomicMin(CallSite site = CallSite::Here()) {
    static_assert(detail::kAtomic<T>, "SetAtomicMin: float, half, bfloat16_t, int32_t, int16_t, int8_t only");
    ascend_sim::SetAtomic(Call{"SetAtomicMin", site}, ascend_sim::AtomicMode::Min, detail::KindOf<T>());
}
inline void SetAtomicNone(CallSite site = CallSite::Here()) {
    ascend_sim::SetAtomic(Call{"SetAtomicNone", site}, ascend_sim::AtomicMode::None, ascend_sim::ElementKind::Other);
}

}  // namespace AscendC
