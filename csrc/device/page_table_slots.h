// Slots by tables of pages: MTE2 fetches the ids of the pages that the runs touch, V makes slots of them.
#pragma once

#include "device/slot_tile.h"

namespace dsv4::kernel {

// Pages that a run touches. Their ids lie from `area` on: of lane 0's page first, though it may lie before page 0;
// those behind the last column of a ring in an area of their own.
struct RunPages {
    int64_t first;  // page of lane 0
    int64_t begin;  // first page that is fetched
    int64_t end;
    int64_t wrap;  // first page behind the last column, or `end`

    __aicore__ inline uint32_t head_elems() const {
        return round_up<uint32_t>(static_cast<uint32_t>(wrap - first), kLaneElems);
    }
    __aicore__ inline uint32_t elems() const {
        return head_elems() + round_up<uint32_t>(static_cast<uint32_t>(end - wrap), kLaneElems);
    }
};

__aicore__ inline RunPages pages_of(const UnitRun& run, const PoolAddress& a) {
    RunPages pages{page_of(run.first, a.page_shift), page_of(run.first + run.begin, a.page_shift),
                   page_of(run.first + run.end - 1, a.page_shift) + 1, 0};
    const int64_t columns_left = a.columns - page_column(pages.begin, a);
    pages.wrap = min_of(pages.end, pages.begin + columns_left);
    return pages;
}

__aicore__ inline void fetch_pages(const SlotTile& t, int32_t pool, const GlobalTensor<int32_t>& table,
                                   int64_t request, const RunPages& pages, uint32_t area) {
    const PoolAddress& a = t.address(pool);
    t.fetch_entries(pool, table, page_entry_elems(request, pages.begin, a),
                    area + static_cast<uint32_t>(pages.begin - pages.first),
                    static_cast<uint32_t>(pages.wrap - pages.begin), t.ids());
    if (pages.wrap < pages.end) {
        t.fetch_entries(pool, table, page_entry_elems(request, pages.wrap, a), area + pages.head_elems(),
                        static_cast<uint32_t>(pages.end - pages.wrap), t.ids());
    }
}

// The lanes from page `wrap` on find their ids in the second area.
__aicore__ inline void skip_to_tail(const SlotTile& t, const LocalTensor<int32_t>& index, const UnitRun& run,
                                    const RunPages& pages, int32_t shift) {
    const int64_t lane = (pages.wrap << shift) - run.first;
    const int64_t skipped = (pages.head_elems() - (pages.wrap - pages.first)) << shift;
    const LocalTensor<int32_t> tail = t.aux()[run.area];
    AscendC::Adds(tail, t.iota(), static_cast<int32_t>(1 - lane), run.lanes);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Maxs(tail, tail, int32_t{0}, run.lanes);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Mins(tail, tail, int32_t{1}, run.lanes);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Muls(tail, tail, static_cast<int32_t>(skipped), run.lanes);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Add(index[run.area], index[run.area], tail, run.lanes);
}

// Fetches the page ids of all runs, 0 elsewhere, and makes `index` meanwhile: where the unit of a lane lies from the
// start of ids() on.
__aicore__ inline void fetch_ids(const SlotTile& t, int32_t pool, const LocalTensor<int32_t>& index) {
    const PoolAddress& a = t.address(pool);
    const GlobalTensor<int32_t> table = t.table(pool);
    AscendC::Duplicate(t.ids(), int32_t{0}, static_cast<int32_t>(kPageIdElems));
    if (a.is_int64 != 0) {
        AscendC::Duplicate(t.wide(), int32_t{0}, static_cast<int32_t>(2 * kPageIdElems));
    }
    AscendC::Duplicate(index, int32_t{0}, t.lanes());
    t.begin_fetch();
    AscendC::PipeBarrier<PIPE_V>();
    uint32_t area = 0;
    bool wraps = false;
    t.each_run([&](const UnitRun& run) {
        const RunPages pages = pages_of(run, a);
        fetch_pages(t, pool, table, run.request, pages, area);
        const int64_t in_page = run.first - pages.first * (int64_t{1} << a.page_shift);
        AscendC::Adds(index[run.area], t.iota(),
                      static_cast<int32_t>((static_cast<int64_t>(area) << a.page_shift) + in_page), run.lanes);
        wraps = wraps || pages.wrap < pages.end;
        area += pages.elems();
    });
    t.end_fetch();
    if (a.is_int64 != 0 && area > 0) {
        AscendC::Cast(t.ids(), t.wide().template ReinterpretCast<int64_t>(), AscendC::RoundMode::CAST_NONE, area);
    }
    AscendC::PipeBarrier<PIPE_V>();
    if (wraps) {
        t.each_run([&](const UnitRun& run) {
            const RunPages pages = pages_of(run, a);
            if (pages.wrap < pages.end) {
                skip_to_tail(t, index, run, pages, a.page_shift);
            }
        });
        AscendC::PipeBarrier<PIPE_V>();
    }
}

// With i counted from the start of the run's first page: slot = id[i / P] * P + i % P.
__aicore__ inline void slots_from_pages(const SlotTile& t, int32_t pool) {
    const int32_t shift = t.address(pool).page_shift;
    const LocalTensor<int32_t> slots = t.tile(pool);  // i, to begin with
    fetch_ids(t, pool, slots);
    const LocalTensor<int32_t> page = t.aux();
    const LocalTensor<int32_t> id_bytes = t.result();
    const LocalTensor<int32_t> page_start = t.spare();
    const LocalTensor<int32_t> id = t.index();
    AscendC::ShiftRight(page, slots, shift, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftLeft(id_bytes, page, int32_t{2}, t.lanes());
    AscendC::ShiftLeft(page_start, page, shift, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sub(slots, slots, page_start, t.lanes());
    AscendC::Gather(id, t.ids(), id_bytes.template ReinterpretCast<uint32_t>(), uint32_t{0}, t.used());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftLeft(page_start, id, shift, t.lanes());
    AscendC::Maxs(page, id, int32_t{0}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Add(slots, slots, page_start, t.lanes());
    AscendC::Mins(page, page, int32_t{1}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    // No page, no slot.
    AscendC::Mul(slots, slots, page, t.lanes());
}

}  // namespace dsv4::kernel
