// One row repeated over a tile in UB.
#pragma once

#include "device/memory.h"

namespace dsv4::kernel {

// target = rows copies of row, pitch_elems apart (a multiple of 32 bytes), gaps included; by doubling. bits_t is an
// integer, so that every bit pattern survives. V only.
template <typename bits_t>
__aicore__ inline void repeat_row(const LocalTensor<bits_t>& target, const LocalTensor<bits_t>& row, uint32_t rows,
                                  uint32_t pitch_elems) {
    AscendC::Adds(target, row, bits_t{0}, static_cast<int32_t>(pitch_elems));
    for (uint32_t done = 1; done < rows;) {
        const uint32_t more = min_of(done, rows - done);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(target[done * pitch_elems], target, bits_t{0}, static_cast<int32_t>(more * pitch_elems));
        done += more;
    }
}

}  // namespace dsv4::kernel
