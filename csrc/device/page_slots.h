// A pool's table of pages of int32, and the slots of units whose pages V has at hand.
#pragma once

#include "common/pool_address.h"
#include "device/memory.h"

namespace dsv4::kernel {

__aicore__ inline GlobalTensor<int32_t> table_of_pages(const PoolAddress& a, uint64_t address) {
    return global<int32_t>(at(address), static_cast<uint64_t>(a.row_elems * (a.requests - 1) + a.columns));
}

// slots[i] = ids[i] * P + offsets[i] where there is a page, else 0; `has`: 1 there, else 0. P is 1 << shift.
__aicore__ inline void slots_of_ids(const LocalTensor<int32_t>& slots, const LocalTensor<int32_t>& ids,
                                    const LocalTensor<int32_t>& offsets, const LocalTensor<int32_t>& has, int32_t shift,
                                    int32_t lanes) {
    AscendC::ShiftLeft(slots, ids, shift, lanes);
    AscendC::Maxs(has, ids, int32_t{0}, lanes);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Add(slots, slots, offsets, lanes);
    AscendC::Mins(has, has, int32_t{1}, lanes);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Mul(slots, slots, has, lanes);
}

// The same slots, `dummy` where there is none; `has` is used up.
__aicore__ inline void put_dummies(const LocalTensor<int32_t>& slots, const LocalTensor<int32_t>& has, int32_t dummy,
                                   int32_t lanes) {
    AscendC::Muls(has, has, -dummy, lanes);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Adds(has, has, dummy, lanes);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Add(slots, slots, has, lanes);
}

}  // namespace dsv4::kernel
