// 0, 1, 2, .. in UB, the start of every run of consecutive values.
#pragma once

#include "device/pipes.h"
#include "kernel_operator.h"

namespace dsv4::kernel {

// Fills `values` with 0 .. elems - 1; V may use it afterwards. Call it before anything else has used the buffer.
__aicore__ inline void fill_iota(const AscendC::LocalTensor<int32_t>& values, uint32_t elems) {
    // From 0: other starts pass through float32 in some toolkit versions.
    AscendC::CreateVecIndex(values, int32_t{0}, elems);
    AscendC::PipeBarrier<PIPE_V>();
}

}  // namespace dsv4::kernel
