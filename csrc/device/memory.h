// Copies between global memory and UB that say what they mean: contiguous elements, or rows at a distance. Sizes are in
// elements unless the name says otherwise; addresses in UB are multiples of 32 bytes.
#pragma once

#include "common/launch_plan.h"
#include "kernel_operator.h"

namespace dsv4::kernel {

using AscendC::GlobalTensor;
using AscendC::LocalTensor;

// An address as a launch struct carries it.
__aicore__ inline GM_ADDR at(uint64_t address) { return reinterpret_cast<GM_ADDR>(address); }

template <typename T>
__aicore__ inline GlobalTensor<T> global(GM_ADDR address, uint64_t elems) {
    GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address), elems);
    return tensor;
}

// A tile of rows in UB, pitch_elems apart (start to start, a multiple of 32 bytes).
template <typename T>
__aicore__ constexpr uint32_t ub_gap_blocks(uint32_t row_elems, uint32_t pitch_elems) {
    return (pitch_elems * sizeof(T) - static_cast<uint32_t>(ub_row_bytes(row_elems * sizeof(T)))) / kUbBlockBytes;
}

// rows rows of row_elems elements, gap_elems apart in global memory (end of one to start of the next) -> tile.
template <typename T>
__aicore__ inline void load_rows(const LocalTensor<T>& to, const GlobalTensor<T>& from, uint32_t rows,
                                 uint32_t row_elems, uint32_t gap_elems, uint32_t pitch_elems) {
    const uint32_t bytes = sizeof(T);
    AscendC::DataCopyPad(to, from,
                         AscendC::DataCopyExtParams{static_cast<uint16_t>(rows), row_elems * bytes, gap_elems * bytes,
                                                    ub_gap_blocks<T>(row_elems, pitch_elems), 0},
                         AscendC::DataCopyPadExtParams<T>{false, 0, 0, T(0)});
}

// The largest distance in bytes that a copy takes between two rows in global memory.
constexpr int64_t kMaxGapBytes = 0x7fffffff;

// Whether one copy can move rows whose starts lie stride_elems apart; repeated and very distant rows need one each.
template <typename T>
__aicore__ constexpr bool one_copy(uint32_t rows, uint32_t row_elems, int64_t stride_elems) {
    const int64_t gap_bytes = (stride_elems - row_elems) * static_cast<int64_t>(sizeof(T));
    return rows > 1 && gap_bytes >= 0 && gap_bytes <= kMaxGapBytes;
}

// load_rows for any distance between the starts of two rows in global memory.
template <typename T>
__aicore__ inline void load_strided_rows(const LocalTensor<T>& to, const GlobalTensor<T>& from, uint32_t rows,
                                         uint32_t row_elems, int64_t stride_elems, uint32_t pitch_elems) {
    if (one_copy<T>(rows, row_elems, stride_elems)) {
        load_rows(to, from, rows, row_elems, static_cast<uint32_t>(stride_elems - row_elems), pitch_elems);
        return;
    }
    for (uint32_t row = 0; row < rows; ++row) {
        load_rows(to[row * pitch_elems], from[static_cast<uint64_t>(row * stride_elems)], 1, row_elems, 0,
                  pitch_elems);
    }
}

template <typename T>
__aicore__ inline void load(const LocalTensor<T>& to, const GlobalTensor<T>& from, uint32_t elems) {
    AscendC::DataCopyPad(to, from,
                         AscendC::DataCopyExtParams{1, elems * static_cast<uint32_t>(sizeof(T)), 0, 0, 0},
                         AscendC::DataCopyPadExtParams<T>{false, 0, 0, T(0)});
}

// load, with `left` times `value` before the elements and `value` again up to the next 32-byte boundary of UB. For types
// of at most 4 bytes; left lies within 32 bytes.
template <typename T>
__aicore__ inline void load_padded(const LocalTensor<T>& to, const GlobalTensor<T>& from, uint32_t elems, uint32_t left,
                                   T value) {
    const uint32_t bytes = elems * static_cast<uint32_t>(sizeof(T));
    const uint32_t used_bytes = bytes + left * static_cast<uint32_t>(sizeof(T));
    const uint32_t right =
        (static_cast<uint32_t>(ub_row_bytes(used_bytes)) - used_bytes) / static_cast<uint32_t>(sizeof(T));
    AscendC::DataCopyPad(
        to, from, AscendC::DataCopyExtParams{1, bytes, 0, 0, 0},
        AscendC::DataCopyPadExtParams<T>{true, static_cast<uint8_t>(left), static_cast<uint8_t>(right), value});
}

// Tile -> rows rows of row_elems elements, without gaps in global memory.
template <typename T>
__aicore__ inline void store_rows(const GlobalTensor<T>& to, const LocalTensor<T>& from, uint32_t rows,
                                  uint32_t row_elems, uint32_t pitch_elems) {
    AscendC::DataCopyPad(to, from,
                         AscendC::DataCopyExtParams{static_cast<uint16_t>(rows),
                                                    row_elems * static_cast<uint32_t>(sizeof(T)),
                                                    ub_gap_blocks<T>(row_elems, pitch_elems), 0, 0});
}

template <typename T>
__aicore__ inline void store(const GlobalTensor<T>& to, const LocalTensor<T>& from, uint32_t elems) {
    AscendC::DataCopyPad(to, from,
                         AscendC::DataCopyExtParams{1, elems * static_cast<uint32_t>(sizeof(T)), 0, 0, 0});
}

// store_rows for any distance between the starts of two rows in global memory; what lies between them is not touched.
template <typename T>
__aicore__ inline void store_strided_rows(const GlobalTensor<T>& to, const LocalTensor<T>& from, uint32_t rows,
                                          uint32_t row_elems, int64_t stride_elems, uint32_t pitch_elems) {
    const uint32_t bytes = sizeof(T);
    if (one_copy<T>(rows, row_elems, stride_elems)) {
        AscendC::DataCopyPad(to, from,
                             AscendC::DataCopyExtParams{static_cast<uint16_t>(rows), row_elems * bytes,
                                                        ub_gap_blocks<T>(row_elems, pitch_elems),
                                                        static_cast<uint32_t>(stride_elems - row_elems) * bytes, 0});
        return;
    }
    for (uint32_t row = 0; row < rows; ++row) {
        store(to[static_cast<uint64_t>(row * stride_elems)], from[row * pitch_elems], row_elems);
    }
}

}  // namespace dsv4::kernel
