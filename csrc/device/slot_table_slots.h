// Slots by tables of slots and by mappings: an entry each, fetched side by side, a column apart or one by one.
#pragma once

#include "device/slot_tile.h"

namespace dsv4::kernel {

// Lanes of a run that lie in a stretch of the tile: [begin, end) of the tile.
struct LaneSpan {
    uint32_t begin;
    uint32_t end;
};

__aicore__ inline LaneSpan within(const UnitRun& run, uint32_t lane, uint32_t count) {
    return LaneSpan{max_of<uint32_t>(lane, run.area + run.begin), min_of<uint32_t>(lane + count, run.area + run.end)};
}

__aicore__ inline void slots_from_scattered_entries(const SlotTile& t, int32_t pool) {
    const PoolAddress& a = t.address(pool);
    const uint32_t words = a.is_int64 != 0 ? 2 : 1;
    t.scattered(pool, [&](uint32_t lane, uint32_t count) {
        t.each_run([&](const UnitRun& run) {
            const LaneSpan span = within(run, lane, count);
            if (span.begin < span.end) {
                const int64_t entry = slot_entry_elems(run.request, run.first + (span.begin - run.area), a);
                // The low word of an entry that fits is the entry.
                load_strided_rows(t.ids()[(span.begin - lane) * kLaneElems],
                                  t.table(pool)[static_cast<uint64_t>(entry) * words], span.end - span.begin, 1,
                                  unit_columns(a) * words, kLaneElems);
            }
        });
    });
    AscendC::ShiftRight(t.tile(pool), t.tile(pool), int32_t{a.slot_shift}, t.lanes());
}

__aicore__ inline void slots_from_entries(const SlotTile& t, int32_t pool) {
    const PoolAddress& a = t.address(pool);
    if (a.slot_shift != 0) {
        slots_from_scattered_entries(t, pool);
        return;
    }
    AscendC::Duplicate(t.tile(pool), int32_t{0}, t.lanes());
    AscendC::Duplicate(t.wide(), int32_t{0}, 2 * t.lanes());
    const GlobalTensor<int32_t> table = t.table(pool);
    t.begin_fetch();
    t.each_run([&](const UnitRun& run) {
        t.fetch_entries(pool, table, slot_entry_elems(run.request, run.first + run.begin, a), run.area + run.begin,
                        static_cast<uint32_t>(run.end - run.begin), t.tile(pool));
    });
    t.end_fetch();
    if (a.is_int64 != 0) {
        AscendC::Cast(t.tile(pool), t.wide().template ReinterpretCast<int64_t>(), AscendC::RoundMode::CAST_NONE,
                      t.used());
        AscendC::PipeBarrier<PIPE_V>();
    }
}

// S reads the base slots and has MTE2 fetch an entry for each.
__aicore__ inline void slots_from_mapping(const SlotTile& t, int32_t pool) {
    const PoolAddress& a = t.address(pool);
    const uint32_t words = a.is_int64 != 0 ? 2 : 1;
    const LocalTensor<int32_t> base = t.tile(a.base);
    order<AscendC::HardEvent::V_S>();
    t.scattered(pool, [&](uint32_t lane, uint32_t count) {
        t.each_run([&](const UnitRun& run) {
            const LaneSpan span = within(run, lane, count);
            for (uint32_t i = span.begin; i < span.end; ++i) {
                const int32_t slot = base.GetValue(i);
                if (slot > 0 && slot < a.row_elems) {
                    load(t.ids()[(i - lane) * kLaneElems], t.table(pool)[static_cast<uint64_t>(slot) * words], 1);
                }
            }
        });
    });
    order<AscendC::HardEvent::S_V>();
}

}  // namespace dsv4::kernel
