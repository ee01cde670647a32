// Slots by arithmetic: rings in the pages of another pool, rings and banks of a request.
#pragma once

#include "device/slot_tile.h"

namespace dsv4::kernel {

// target = value % ring; uses aux().
__aicore__ inline void in_ring(const SlotTile& t, const LocalTensor<int32_t>& target,
                               const LocalTensor<int32_t>& values, int32_t shift) {
    AscendC::ShiftRight(t.aux(), values, shift, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftLeft(t.aux(), t.aux(), shift, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sub(target, values, t.aux(), t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
}

// slot / P * ring + slot % ring, which may be 0; -1 where the base has no slot.
__aicore__ inline void slots_from_page_ring(const SlotTile& t, int32_t pool) {
    const PoolAddress& a = t.address(pool);
    const LocalTensor<int32_t> slots = t.tile(pool);
    const LocalTensor<int32_t> base = t.tile(a.base);
    in_ring(t, slots, base, a.ring_shift);
    AscendC::ShiftRight(t.aux(), base, int32_t{t.address(a.base).page_shift}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftLeft(t.aux(), t.aux(), int32_t{a.ring_shift}, t.lanes());
    AscendC::Maxs(t.index(), base, int32_t{0}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Add(slots, slots, t.aux(), t.lanes());
    AscendC::Mins(t.index(), t.index(), int32_t{1}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Adds(slots, slots, int32_t{1}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Mul(slots, slots, t.index(), t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Adds(slots, slots, int32_t{-1}, t.lanes());
}

__aicore__ inline void slots_from_request_ring(const SlotTile& t, int32_t pool) {
    const PoolAddress& a = t.address(pool);
    AscendC::Duplicate(t.index(), int32_t{0}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    t.each_run([&](const UnitRun& run) {
        AscendC::Adds(t.index()[run.area], t.iota(), static_cast<int32_t>(run.first), run.lanes);
    });
    AscendC::PipeBarrier<PIPE_V>();
    in_ring(t, t.tile(pool), t.index(), a.ring_shift);
    t.each_run([&](const UnitRun& run) {
        AscendC::Adds(t.tile(pool)[run.area], t.tile(pool)[run.area], static_cast<int32_t>(run.request << a.ring_shift),
                      run.lanes);
    });
}

__aicore__ inline void slots_from_bank(const SlotTile& t, int32_t pool) {
    AscendC::Duplicate(t.tile(pool), int32_t{0}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    t.each_run([&](const UnitRun& run) {
        AscendC::Duplicate(t.tile(pool)[run.area], static_cast<int32_t>(run.request), run.lanes);
    });
}

}  // namespace dsv4::kernel
