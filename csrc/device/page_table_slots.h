// Slots by tables of pages: MTE2 fetches the ids of the pages that the runs touch, V makes slots of them.
#pragma once

#include "device/page_slots.h"
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

// Pools whose tables have pages of one size and as many columns, so that a unit's page is the same in all of them.
struct AlikePools {
    int32_t pool[kTokenPools];
    uint32_t count;
};

__aicore__ inline RunPages pages_of(const UnitRun& run, const PoolAddress& a) {
    RunPages pages{page_of(run.first, a.page_shift), page_of(run.first + run.begin, a.page_shift),
                   page_of(run.first + run.end - 1, a.page_shift) + 1, 0};
    const int64_t columns_left = a.columns - page_column(pages.begin, a);
    pages.wrap = min_of(pages.end, pages.begin + columns_left);
    return pages;
}

// The tables of such pools, and where the ids of pages go.
class PageIds {
  public:
    __aicore__ inline PageIds(const SlotTile& t, const AlikePools& pools)
        : t_(t), pools_(pools), words_(t.address(pools.pool[0]).is_int64 != 0 ? 2 : 1) {
        for (uint32_t i = 0; i < pools.count; ++i) {
            tables_[i] = t.table(pools.pool[i]);
            ids_[i] = words_ == 2 ? t.wide() : t.ids(pools.pool[i]);
            AscendC::Duplicate(ids_[i], int32_t{0}, static_cast<int32_t>(words_ * kPageIdElems));
        }
    }

    // Of the pages [first, end), which lie next to each other from a column on, to the entries from `lane` on.
    __aicore__ inline void fetch(int64_t request, int64_t first, int64_t end, uint32_t lane) const {
        const int64_t column = page_column(first, t_.address(pools_.pool[0]));
        const uint32_t left = lane * words_ % static_cast<uint32_t>(kLaneElems);
        for (uint32_t i = 0; i < pools_.count; ++i) {
            const int64_t entry = request * t_.address(pools_.pool[i]).row_elems + column;
            load_padded(ids_[i][lane * words_ - left], tables_[i][static_cast<uint64_t>(entry) * words_],
                        static_cast<uint32_t>(end - first) * words_, left, int32_t{0});
        }
    }

  private:
    const SlotTile& t_;
    const AlikePools& pools_;
    GlobalTensor<int32_t> tables_[kTokenPools];
    LocalTensor<int32_t> ids_[kTokenPools];
    uint32_t words_;
};

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
__aicore__ inline void fetch_ids(const SlotTile& t, const AlikePools& pools, const LocalTensor<int32_t>& index) {
    const PoolAddress& a = t.address(pools.pool[0]);
    const PageIds ids(t, pools);
    AscendC::Duplicate(index, int32_t{0}, t.lanes());
    t.begin_fetch();
    AscendC::PipeBarrier<PIPE_V>();
    uint32_t area = 0;
    bool wraps = false;
    t.each_run([&](const UnitRun& run) {
        const RunPages pages = pages_of(run, a);
        ids.fetch(run.request, pages.begin, pages.wrap, area + static_cast<uint32_t>(pages.begin - pages.first));
        if (pages.wrap < pages.end) {
            ids.fetch(run.request, pages.wrap, pages.end, area + pages.head_elems());
            wraps = true;
        }
        const int64_t in_page = offset_in_page(run.first, a.page_shift);
        AscendC::Adds(index[run.area], t.iota(),
                      static_cast<int32_t>((static_cast<int64_t>(area) << a.page_shift) + in_page), run.lanes);
        area += pages.elems();
    });
    t.end_fetch();
    if (a.is_int64 != 0) {
        AscendC::Cast(t.ids(pools.pool[0]), t.wide().template ReinterpretCast<int64_t>(), AscendC::RoundMode::CAST_NONE,
                      kPageIdElems);
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
__aicore__ inline void slots_from_pages(const SlotTile& t, const AlikePools& pools) {
    const int32_t shift = t.address(pools.pool[0]).page_shift;
    const LocalTensor<int32_t> index = t.tile(pools.pool[0]);  // i
    fetch_ids(t, pools, index);
    const LocalTensor<int32_t> page = t.aux();
    const LocalTensor<int32_t> id_bytes = t.result();
    const LocalTensor<int32_t> offset = t.spare();
    const LocalTensor<int32_t> id = t.index();
    AscendC::ShiftRight(page, index, shift, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftLeft(id_bytes, page, int32_t{2}, t.lanes());
    AscendC::ShiftLeft(offset, page, shift, t.lanes());
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sub(offset, index, offset, t.lanes());
    for (uint32_t i = 0; i < pools.count; ++i) {
        const LocalTensor<int32_t> slots = t.tile(pools.pool[i]);
        AscendC::Gather(id, t.ids(pools.pool[i]), id_bytes.template ReinterpretCast<uint32_t>(), uint32_t{0}, t.used());
        AscendC::PipeBarrier<PIPE_V>();
        slots_of_ids(slots, id, offset, page, shift, t.lanes());
    }
}

}  // namespace dsv4::kernel
