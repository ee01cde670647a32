// What differs for our kernels between Atlas A5 (dav-3510), and Atlas A2 and A3 (dav-2201): the only file of csrc that
// asks which of them it is compiled for. Beyond what stands here,
//   - a vector instruction over 0 elements does nothing on A2 and A3, and on A5 nobody promises it: no kernel issues one,
//     and the simulator of the tests reports it;
//   - A5 has 248 KB of UB for kernels, and behind it what instructions with masks and GatherMask take for themselves:
//     kUbBudgetBytes fits both;
//   - the strides of a copy are int64 on A5: kMaxGapBytes keeps ours within what both hold.
#pragma once

#include "common/launch_plan.h"
#include "kernel_operator.h"

namespace dsv4::kernel {

#if defined(__NPU_ARCH__) && __NPU_ARCH__ == 3510
#define DSV4_ATLAS_A5 1
#else
#define DSV4_ATLAS_A5 0
#endif

// Bit i of `bits` tells whether values[i] is `wanted`. Counts are multiples of what 256 bytes hold.
template <typename T>
__aicore__ inline void compare_equal(const AscendC::LocalTensor<uint8_t>& bits, const AscendC::LocalTensor<T>& values,
                                     T wanted, uint32_t elems) {
#if DSV4_ATLAS_A5
    AscendC::Compares(bits, values, wanted, AscendC::CMPMODE::EQ, elems);
#else
    AscendC::CompareScalar(bits, values, wanted, AscendC::CMPMODE::EQ, elems);
#endif
}

// x[row] *= factors, for `rows` rows of `lanes` elements that lie pitch_elems apart, a multiple of 32 bytes. At most 255
// rows, of at most 256 bytes.
template <typename T>
__aicore__ inline void multiply_rows_by(const AscendC::LocalTensor<T>& x, const AscendC::LocalTensor<T>& factors,
                                        uint32_t lanes, uint32_t rows, uint32_t pitch_elems) {
#if DSV4_ATLAS_A5
    // The overload with a mask takes UB that an option of the device compiler can give away.
    for (uint32_t row = 0; row < rows; ++row) {
        const AscendC::LocalTensor<T> first = x[row * pitch_elems];
        AscendC::Mul(first, first, factors, static_cast<int32_t>(lanes));
    }
#else
    const uint8_t pitch_blocks = static_cast<uint8_t>(pitch_elems * sizeof(T) / kUbBlockBytes);
    AscendC::Mul(x, x, factors, uint64_t{lanes}, static_cast<uint8_t>(rows),
                 AscendC::BinaryRepeatParams{1, 1, 1, pitch_blocks, pitch_blocks, 0});
#endif
}

}  // namespace dsv4::kernel
