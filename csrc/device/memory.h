// Copies between global memory and UB that say what they mean: contiguous elements, or rows at a distance. Sizes are in
// elements unless the name says otherwise; addresses in UB are multiples of 32 bytes.
#pragma once

#include "common/launch_plan.h"
#include "kernel_operator.h"

namespace dsv4::kernel {

using AscendC::GlobalTensor;
using AscendC::LocalTensor;

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

template <typename T>
__aicore__ inline void load(const LocalTensor<T>& to, const GlobalTensor<T>& from, uint32_t elems) {
    AscendC::DataCopyPad(to, from,
                         AscendC::DataCopyExtParams{1, elems * static_cast<uint32_t>(sizeof(T)), 0, 0, 0},
                         AscendC::DataCopyPadExtParams<T>{false, 0, 0, T(0)});
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

}  // namespace dsv4::kernel
