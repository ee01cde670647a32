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

__aicore__ inline void fetch_pages(const SlotTile& t, int32_t pool, int64_t request, const RunPages& pages,
                                   uint32_t area) {
    const PoolAddress& a = t.address(pool);
    t.fetch_entries(pool, page_entry_elems(request, pages.begin, a),
                    area + static_cast<uint32_t>(pages.begin - pages.first),
                    static_cast<uint32_t>(pages.wrap - pages.begin), t.ids());
    if (pages.wrap < pages.end) {
        t.fetch_entries(pool, page_entry_elems(request, pages.wrap, a), area + pages.head_elems(),
                        static_cast<uint32_t>(pages.end - pages.wrap), t.ids());
    }
}

// The lanes from page `wrap` on find their ids in the second area.
__aicore__ inline void skip_to_tail(const SlotTile& t, const UnitRun& run, const RunPages& pages, int32_t shift) {
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
    AscendC::Add(t.index()[run.area], t.index()[run.area], tail, run.lanes);
}

// Fetches the page ids of all runs, 0 elsewhere, and makes index(): where the unit of a lane lies from the start of
// ids() on.
__aicore__ inline void fetch_ids(const SlotTile& t, int32_t pool) {
    const PoolAddress& a = t.address(pool);
    AscendC::Duplicate(t.ids(), int32_t{0}, static_cast<int32_t>(kPageIdElems));
    AscendC::Duplicate(t.wide(), int32_t{0}, static_cast<int32_t>(2 * kPageIdElems));
    t.begin_fetch();
    uint32_t area = 0;
    t.each_run([&](const UnitRun& run) {
        const RunPages pages = pages_of(run, a);
        fetch_pages(t, pool, run.request, pages, area);
        area += pages.elems();
    });
    t.end_fetch();
    if (a.is_int64 != 0 && area > 0) {
        AscendC::Cast(t.ids(), t.wide().template ReinterpretCast<int64_t>(), AscendC::RoundMode::CAST_NONE, area);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Duplicate(t.index(), int32_t{0}, t.lanes());
    }
    AscendC::PipeBarrier<PIPE_V>();
    area = 0;
    t.each_run([&](const UnitRun& run) {
        const RunPages pages = pages_of(run, a);
        const int64_t in_page = run.first - pages.first * (int64_t{1} << a.page_shift);
        AscendC::Adds(t.index()[run.area], t.iota(),
                      static_cast<int32_t>((static_cast<int64_t>(area) << a.page_shift) + in_page), run.lanes);
        if (pages.wrap < pages.end) {
            skip_to_tail(t, run, pages, a.page_shift);
        }
        area += pages.elems();
    });
    AscendC::PipeBarrier<PIPE_V>();
}

// With i counted from the start of the run's first page: slot = id[i / P] * P + i % P.
__aicore__ inline void slots_from_pages(const SlotTile& t, int32_t pool) {
    const int32_t shift = t.address(pool).page_shift;
    fetch_ids(t, pool);
    const LocalTensor<int32_t> slots = t.tile(pool);
    const LocalTensor<int32_t> page = t.result();
    const LocalTensor<int32_t> id = t.spare();
    AscendC::ShiftRight(t.aux(), t.index(), shift, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftLeft(slots, t.aux(), int32_t{2}, t.lanes());
    AscendC::ShiftLeft(page, t.aux(), shift, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sub(t.index(), t.index(), page, t.lanes());
    AscendC::Gather(id, t.ids(), slots.template ReinterpretCast<uint32_t>(), uint32_t{0}, t.used());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftLeft(slots, id, shift, t.lanes());
    AscendC::Maxs(t.aux(), id, int32_t{0}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Add(slots, slots, t.index(), t.lanes());
    AscendC::Mins(t.aux(), t.aux(), int32_t{1}, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    // No page, no slot.
    AscendC::Mul(slots, slots, t.aux(), t.lanes());
}

}  // namespace dsv4::kernel
