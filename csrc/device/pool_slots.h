// Slots of runs of units, whatever the kind of the pool's address (common/pool_address.h): MTE2 fetches what the tables
// hold, V makes slots of it.
#pragma once

#include "device/page_table_slots.h"
#include "device/ring_slots.h"
#include "device/slot_table_slots.h"
#include "device/slot_tile.h"

namespace dsv4::kernel {

class PoolSlots {
  public:
    __aicore__ inline PoolSlots() = default;
    // tables: address of each pool's table or mapping. iota: 0, 1, .. for a tile. scratch: kPoolSlotElems.
    __aicore__ inline PoolSlots(const PoolAddress* pools, const uint64_t* tables, const LocalTensor<int32_t>& iota,
                                const LocalTensor<int32_t>& scratch)
        : tile_(pools, tables, iota, scratch) {}

    // Begins a tile. Whatever read the last result has been ordered before V and MTE2 by the caller.
    // used: lanes of all areas together, at most kSlotTileLanes; areas follow each other. pools: a bit for each token
    // pool whose slots will be asked for, so that they can be made together.
    __aicore__ inline void start(const UnitRun* runs, uint32_t num_runs, uint32_t used, uint32_t pools = 0) {
        tile_.start(runs, num_runs, used);
        pools_ = pools;
        ready_ = 0;
        all_whole_ = true;
        tile_.every_run([&](const UnitRun& run) { all_whole_ = all_whole_ && run.whole(); });
    }

    // int32 slots of a pool, `dummy` in lanes without one, made by V. The result lasts until the next call.
    __aicore__ inline LocalTensor<int32_t> slots(int32_t pool, int32_t dummy) {
        prepare(pool);
        const LocalTensor<int32_t> found = tile_.tile(pool);
        const LocalTensor<int32_t> target = tile_.result();
        if (may_lack_slots(tile_.address(pool))) {
            put_dummy(target, found, tile_.address(pool).kind == kPageRing ? 0 : 1, dummy);
        } else {
            AscendC::Adds(target, found, int32_t{0}, tile_.lanes());
        }
        AscendC::PipeBarrier<PIPE_V>();
        if (!all_whole_) {
            tile_.every_run([&](const UnitRun& run) { mask_run(target, run, dummy); });
            AscendC::PipeBarrier<PIPE_V>();
        }
        return target;
    }

    // Raw position of each lane's unit of 1 << unit_shift tokens, 0 in lanes without one, made by V. The result lasts
    // until the next call.
    __aicore__ inline LocalTensor<int32_t> positions(int32_t unit_shift) {
        const LocalTensor<int32_t> target = tile_.result();
        tile_.every_run([&](const UnitRun& run) {
            if (run.empty()) {
                AscendC::Duplicate(target[run.area], int32_t{0}, run.lanes);
            } else {
                AscendC::Adds(target[run.area], tile_.iota(), static_cast<int32_t>(run.first), run.lanes);
            }
        });
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(target, target, unit_shift, tile_.lanes());
        AscendC::PipeBarrier<PIPE_V>();
        return target;
    }

    // The result as int64; V makes it.
    __aicore__ inline LocalTensor<int64_t> widened(const LocalTensor<int32_t>& values) {
        const LocalTensor<int64_t> wide = tile_.index().template ReinterpretCast<int64_t>();
        AscendC::Cast(wide, values, AscendC::RoundMode::CAST_NONE, tile_.used());
        return wide;
    }

    // The result as pairs (page, offset) of int32, each in the place of an int64; V makes them, and uses `values` up.
    __aicore__ inline LocalTensor<int64_t> paired(const LocalTensor<int32_t>& values, int32_t page_shift) {
        const LocalTensor<int32_t> page = tile_.spare();
        const LocalTensor<int32_t> pairs = tile_.index();
        AscendC::ShiftRight(page, values, page_shift, tile_.lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(pairs, page, page_shift, tile_.lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(values, values, pairs, tile_.lanes());
        // Pages lie a tile behind the offsets: element k of the pairs is that of slot k / 2, of pages where k is even.
        constexpr int32_t kTile = static_cast<int32_t>(kSlotTileLanes);
        const LocalTensor<int32_t> sources = tile_.ids();
        AscendC::ShiftRight(sources, tile_.iota(), int32_t{1}, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(pairs, sources, int32_t{1}, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(pairs, tile_.iota(), pairs, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(pairs, pairs, -kTile, kTile);
        AscendC::Adds(sources, sources, kTile, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(sources, sources, pairs, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(sources, sources, int32_t{2}, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t begin = 0; begin < tile_.used(); begin += kSlotTileLanes / 2) {
            AscendC::Gather(pairs[2 * begin], values, sources.template ReinterpretCast<uint32_t>(),
                            static_cast<uint32_t>(begin * sizeof(int32_t)),
                            2 * min_of<uint32_t>(kSlotTileLanes / 2, tile_.used() - begin));
        }
        return pairs.template ReinterpretCast<int64_t>();
    }

  private:
    __aicore__ inline void prepare(int32_t pool) {
        if ((ready_ >> pool & 1) != 0) {
            return;
        }
        const PoolAddress& a = tile_.address(pool);
        if (a.kind == kMapped || a.kind == kPageRing) {
            prepare(a.base);
        }
        if (a.kind == kPages) {
            const AlikePools pools = alike(pool);
            slots_from_pages(tile_, pools);
            for (uint32_t i = 0; i < pools.count; ++i) {
                ready_ |= 1 << pools.pool[i];
            }
        } else if (a.kind == kSlots) {
            slots_from_entries(tile_, pool);
        } else if (a.kind == kMapped) {
            slots_from_mapping(tile_, pool);
        } else if (a.kind == kPageRing) {
            slots_from_page_ring(tile_, pool);
        } else if (a.kind == kRequestRing) {
            slots_from_request_ring(tile_, pool);
        } else {
            slots_from_bank(tile_, pool);
        }
        AscendC::PipeBarrier<PIPE_V>();
        ready_ |= 1 << pool;
    }

    // The pool and, where its ids need no room of their own to be narrowed in, others that are asked for.
    __aicore__ inline AlikePools alike(int32_t pool) const {
        const PoolAddress& a = tile_.address(pool);
        const uint32_t others = a.is_int64 != 0 ? 0 : pools_ & ~ready_ & ~(1u << pool);
        AlikePools pools{{pool}, 1};
        for (int32_t other = 0; others >> other != 0; ++other) {
            const PoolAddress& b = tile_.address(other);
            if ((others >> other & 1) != 0 && b.kind == kPages && b.is_int64 == 0 && b.page_shift == a.page_shift &&
                b.columns == a.columns) {
                pools.pool[pools.count++] = other;
            }
        }
        return pools;
    }

    // target = found where that is at least `least`, else dummy.
    __aicore__ inline void put_dummy(const LocalTensor<int32_t>& target, const LocalTensor<int32_t>& found,
                                     int32_t least, int32_t dummy) {
        AscendC::Maxs(target, found, int32_t{0}, tile_.lanes());
        if (dummy == 0) {
            return;
        }
        // 1 where there is a slot; dummy * (1 - that) is added.
        AscendC::Maxs(tile_.aux(), found, least - 1, tile_.lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(tile_.aux(), tile_.aux(), 1 - least, tile_.lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(tile_.aux(), tile_.aux(), int32_t{1}, tile_.lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(tile_.aux(), tile_.aux(), -dummy, tile_.lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(tile_.aux(), tile_.aux(), dummy, tile_.lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(target, target, tile_.aux(), tile_.lanes());
    }

    // Lanes that are not the run's get the dummy.
    __aicore__ inline void mask_run(const LocalTensor<int32_t>& target, const UnitRun& run, int32_t dummy) {
        const LocalTensor<int32_t> area = target[run.area];
        if (run.empty()) {
            AscendC::Duplicate(area, dummy, run.lanes);
            return;
        }
        if (run.whole()) {
            return;
        }
        // 1 for lanes from `begin` on, times 1 for lanes before `end`.
        const LocalTensor<int32_t> from = tile_.index()[run.area];
        const LocalTensor<int32_t> before = tile_.aux()[run.area];
        AscendC::Adds(from, tile_.iota(), 1 - run.begin, run.lanes);
        AscendC::Muls(before, tile_.iota(), int32_t{-1}, run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Maxs(from, from, int32_t{0}, run.lanes);
        AscendC::Adds(before, before, run.end, run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(from, from, int32_t{1}, run.lanes);
        AscendC::Maxs(before, before, int32_t{0}, run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(before, before, int32_t{1}, run.lanes);
        AscendC::Adds(area, area, -dummy, run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(from, from, before, run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(area, area, from, run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(area, area, dummy, run.lanes);
    }

    SlotTile tile_;
    uint32_t pools_ = 0;
    uint32_t ready_ = 0;  // bit pool: its tile is made
    bool all_whole_ = false;
};

}  // namespace dsv4::kernel
