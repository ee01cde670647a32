// Slots of runs of units, whatever the kind of the pool's address (common/pool_address.h): MTE2 fetches what the tables
// hold, V makes slots of it. A tile holds the runs of a call, each in an area of its own that starts at a 32-byte
// boundary.
#pragma once

#include "common/pool_address.h"
#include "common/step_launch.h"
#include "device/memory.h"
#include "device/pipes.h"

namespace dsv4::kernel {

// Consecutive units of one request: lane i of the area is unit `first` + i. Lanes outside [begin, end) have no slot;
// `first` may be negative, `first` + `begin` is not.
struct UnitRun {
    int64_t request;
    int64_t first;
    int32_t lanes;
    int32_t begin;
    int32_t end;
    uint32_t area;

    __aicore__ inline bool empty() const { return begin >= end; }
    __aicore__ inline bool whole() const { return begin == 0 && end == lanes; }
};

constexpr uint32_t kMaxRuns = 128;
constexpr uint32_t kSlotTileLanes = static_cast<uint32_t>(kMaxDeviceLanes);
constexpr uint32_t kScatteredLanes = 256;  // entries that are fetched at a time into a 32-byte block each

// UB of PoolSlots, in int32: tiles of the token pools, page ids or scattered entries, and room for int64 entries, which
// V uses for its own values once they are narrowed.
constexpr uint32_t kPageIdElems = kSlotTileLanes + kMaxRuns * kLaneElems;
constexpr uint32_t kPoolSlotElems = 4 * kSlotTileLanes + 3 * kPageIdElems;
static_assert(kPageIdElems >= kScatteredLanes * kLaneElems);
static_assert(2 * kPageIdElems >= 4 * kSlotTileLanes, "index, aux, result, spare");
static_assert(kPoolSlotElems <= kScratchElems);

class PoolSlots {
  public:
    __aicore__ inline PoolSlots() = default;
    // tables: address of each pool's table or mapping. iota: 0, 1, .. for a tile. scratch: kPoolSlotElems.
    __aicore__ inline PoolSlots(const PoolAddress* pools, const uint64_t* tables, const LocalTensor<int32_t>& iota,
                                const LocalTensor<int32_t>& scratch)
        : pools_(pools), tables_(tables), iota_(iota), scratch_(scratch) {}

    // Begins a tile. Whatever read the last result has been ordered before V and MTE2 by the caller.
    // used: lanes of all areas together, at most kSlotTileLanes; areas follow each other.
    __aicore__ inline void start(const UnitRun* runs, uint32_t num_runs, uint32_t used) {
        runs_ = runs;
        num_runs_ = num_runs;
        used_ = used;
        ready_ = 0;
    }

    // int32 slots of a pool, `dummy` in lanes without one, made by V. The result lasts until the next call.
    __aicore__ inline LocalTensor<int32_t> slots(int32_t pool, int32_t dummy) {
        prepare(pool);
        const LocalTensor<int32_t> found = tile(pool);
        const LocalTensor<int32_t> target = result();
        if (may_lack_slots(pools_[pool])) {
            put_dummy(target, found, pools_[pool].kind == kPageRing ? 0 : 1, dummy);
        } else {
            AscendC::Adds(target, found, int32_t{0}, lanes());
        }
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i < num_runs_; ++i) {
            mask_run(target, runs_[i], dummy);
        }
        AscendC::PipeBarrier<PIPE_V>();
        return target;
    }

    // The result as int64; V makes it.
    __aicore__ inline LocalTensor<int64_t> widened(const LocalTensor<int32_t>& values) {
        const LocalTensor<int64_t> wide = index().template ReinterpretCast<int64_t>();
        AscendC::Cast(wide, values, AscendC::RoundMode::CAST_NONE, used_);
        return wide;
    }

    // The result as pairs (page, offset) of int32, each in the place of an int64; V makes them, and uses `values` up.
    __aicore__ inline LocalTensor<int64_t> paired(const LocalTensor<int32_t>& values, int32_t page_shift) {
        const LocalTensor<int32_t> page = spare();
        const LocalTensor<int32_t> pairs = index();
        AscendC::ShiftRight(page, values, page_shift, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(pairs, page, page_shift, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(values, values, pairs, lanes());
        // Pages lie a tile behind the offsets: element k of the pairs is that of slot k / 2, of pages where k is even.
        constexpr int32_t kTile = static_cast<int32_t>(kSlotTileLanes);
        const LocalTensor<int32_t> sources = ids();
        AscendC::ShiftRight(sources, iota_, int32_t{1}, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(pairs, sources, int32_t{1}, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(pairs, iota_, pairs, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(pairs, pairs, -kTile, kTile);
        AscendC::Adds(sources, sources, kTile, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(sources, sources, pairs, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(sources, sources, int32_t{2}, kTile);
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t begin = 0; begin < used_; begin += kSlotTileLanes / 2) {
            AscendC::Gather(pairs[2 * begin], values, sources.template ReinterpretCast<uint32_t>(),
                            static_cast<uint32_t>(begin * sizeof(int32_t)),
                            2 * min_of<uint32_t>(kSlotTileLanes / 2, used_ - begin));
        }
        return pairs.template ReinterpretCast<int64_t>();
    }

  private:
    __aicore__ inline int32_t lanes() const { return static_cast<int32_t>(used_); }

    // Slots as the pool gives them; in kinds that may lack slots 0 or less for none, less than 0 in a page ring. Groups
    // have no base, so that one tile does.
    __aicore__ inline LocalTensor<int32_t> tile(int32_t pool) const {
        const uint32_t number = pool == kSwa ? 1 : pool == kC4State ? 2 : pool == kC128State ? 3 : 0;
        return scratch_[number * kSlotTileLanes];
    }
    __aicore__ inline LocalTensor<int32_t> ids() const { return scratch_[4 * kSlotTileLanes]; }
    __aicore__ inline LocalTensor<int32_t> wide() const { return scratch_[4 * kSlotTileLanes + kPageIdElems]; }
    __aicore__ inline LocalTensor<int32_t> index() const { return wide(); }
    __aicore__ inline LocalTensor<int32_t> aux() const { return wide()[kSlotTileLanes]; }
    __aicore__ inline LocalTensor<int32_t> result() const { return wide()[2 * kSlotTileLanes]; }
    __aicore__ inline LocalTensor<int32_t> spare() const { return wide()[3 * kSlotTileLanes]; }

    __aicore__ inline GlobalTensor<int32_t> table(int32_t pool) const {
        const PoolAddress& a = pools_[pool];
        const uint64_t words = a.is_int64 != 0 ? 2 : 1;
        const uint64_t entries = a.kind == kMapped ? static_cast<uint64_t>(a.row_elems)
                                                   : static_cast<uint64_t>(a.row_elems) * (a.requests - 1) + a.columns;
        return global<int32_t>(at(tables_[pool]), entries * words);
    }

    __aicore__ inline void prepare(int32_t pool) {
        if ((ready_ >> pool & 1) != 0) {
            return;
        }
        const PoolAddress& a = pools_[pool];
        if (a.kind == kPages) {
            from_pages(pool);
        } else if (a.kind == kSlots) {
            from_slots(pool);
        } else if (a.kind == kMapped) {
            prepare(a.base);
            from_mapping(pool);
        } else if (a.kind == kPageRing) {
            prepare(a.base);
            from_page_ring(pool);
        } else if (a.kind == kRequestRing) {
            from_request_ring(pool);
        } else {
            AscendC::Duplicate(tile(pool), int32_t{0}, lanes());
            AscendC::PipeBarrier<PIPE_V>();
            each_run([&](const UnitRun& run) {
                AscendC::Duplicate(tile(pool)[run.area], static_cast<int32_t>(run.request), run.lanes);
            });
        }
        AscendC::PipeBarrier<PIPE_V>();
        ready_ |= 1 << pool;
    }

    template <typename Body>
    __aicore__ inline void each_run(const Body& body) {
        for (uint32_t i = 0; i < num_runs_; ++i) {
            if (!runs_[i].empty()) {
                body(runs_[i]);
            }
        }
    }

    // What V did to the buffers comes before MTE2 fills them again.
    __aicore__ inline void begin_fetch() { order<AscendC::HardEvent::V_MTE2>(); }
    __aicore__ inline void end_fetch() { order<AscendC::HardEvent::MTE2_V>(); }

    // target = found where that is at least `least`, else dummy.
    __aicore__ inline void put_dummy(const LocalTensor<int32_t>& target, const LocalTensor<int32_t>& found,
                                     int32_t least, int32_t dummy) {
        AscendC::Maxs(target, found, int32_t{0}, lanes());
        if (dummy == 0) {
            return;
        }
        // 1 where there is a slot; dummy * (1 - that) is added.
        AscendC::Maxs(aux(), found, least - 1, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(aux(), aux(), 1 - least, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(aux(), aux(), int32_t{1}, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(aux(), aux(), -dummy, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(aux(), aux(), dummy, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(target, target, aux(), lanes());
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
        const LocalTensor<int32_t> from = index()[run.area];
        const LocalTensor<int32_t> before = aux()[run.area];
        AscendC::Adds(from, iota_, 1 - run.begin, run.lanes);
        AscendC::Muls(before, iota_, int32_t{-1}, run.lanes);
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

    // With i counted from the start of the run's first page: slot = id[i / P] * P + i % P.
    __aicore__ inline void from_pages(int32_t pool) {
        const int32_t shift = pools_[pool].page_shift;
        fetch_ids(pool);
        const LocalTensor<int32_t> slots = tile(pool);
        const LocalTensor<int32_t> page = result();
        const LocalTensor<int32_t> id = spare();
        AscendC::ShiftRight(aux(), index(), shift, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(slots, aux(), int32_t{2}, lanes());
        AscendC::ShiftLeft(page, aux(), shift, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(index(), index(), page, lanes());
        AscendC::Gather(id, ids(), slots.template ReinterpretCast<uint32_t>(), uint32_t{0}, used_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(slots, id, shift, lanes());
        AscendC::Maxs(aux(), id, int32_t{0}, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(slots, slots, index(), lanes());
        AscendC::Mins(aux(), aux(), int32_t{1}, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        // No page, no slot.
        AscendC::Mul(slots, slots, aux(), lanes());
    }

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

    __aicore__ inline RunPages pages_of(const UnitRun& run, const PoolAddress& a) const {
        RunPages pages{page_of(run.first, a.page_shift), page_of(run.first + run.begin, a.page_shift),
                       page_of(run.first + run.end - 1, a.page_shift) + 1, 0};
        const int64_t columns_left = a.columns - page_column(pages.begin, a);
        pages.wrap = min_of(pages.end, pages.begin + columns_left);
        return pages;
    }

    // `count` entries from column `column` on, to the lanes `lane`.. of ids(), or of wide() for int64 entries. The
    // lanes before, down to a 32-byte boundary, become 0.
    __aicore__ inline void fetch_entries(int32_t pool, int64_t entry, uint32_t lane, uint32_t count,
                                         const LocalTensor<int32_t>& narrow) {
        const bool is_wide = pools_[pool].is_int64 != 0;
        const uint32_t words = is_wide ? 2 : 1;
        const uint32_t left = lane * words % static_cast<uint32_t>(kLaneElems);
        const LocalTensor<int32_t> target = (is_wide ? wide() : narrow)[lane * words - left];
        load_padded(target, table(pool)[static_cast<uint64_t>(entry) * words], count * words, left, int32_t{0});
    }

    __aicore__ inline void fetch_pages(int32_t pool, int64_t request, const RunPages& pages, uint32_t area) {
        const PoolAddress& a = pools_[pool];
        fetch_entries(pool, page_entry_elems(request, pages.begin, a),
                      area + static_cast<uint32_t>(pages.begin - pages.first),
                      static_cast<uint32_t>(pages.wrap - pages.begin), ids());
        if (pages.wrap < pages.end) {
            fetch_entries(pool, page_entry_elems(request, pages.wrap, a), area + pages.head_elems(),
                          static_cast<uint32_t>(pages.end - pages.wrap), ids());
        }
    }

    // Fetches the page ids of all runs, 0 elsewhere, and makes index(): where the unit of a lane lies from the start of
    // ids() on.
    __aicore__ inline void fetch_ids(int32_t pool) {
        const PoolAddress& a = pools_[pool];
        AscendC::Duplicate(ids(), int32_t{0}, static_cast<int32_t>(kPageIdElems));
        AscendC::Duplicate(wide(), int32_t{0}, static_cast<int32_t>(2 * kPageIdElems));
        begin_fetch();
        uint32_t area = 0;
        each_run([&](const UnitRun& run) {
            const RunPages pages = pages_of(run, a);
            fetch_pages(pool, run.request, pages, area);
            area += pages.elems();
        });
        end_fetch();
        if (a.is_int64 != 0 && area > 0) {
            AscendC::Cast(ids(), wide().template ReinterpretCast<int64_t>(), AscendC::RoundMode::CAST_NONE, area);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Duplicate(index(), int32_t{0}, lanes());
        }
        AscendC::PipeBarrier<PIPE_V>();
        area = 0;
        each_run([&](const UnitRun& run) {
            const RunPages pages = pages_of(run, a);
            const int64_t in_page = run.first - pages.first * (int64_t{1} << a.page_shift);
            AscendC::Adds(index()[run.area], iota_,
                          static_cast<int32_t>((static_cast<int64_t>(area) << a.page_shift) + in_page), run.lanes);
            if (pages.wrap < pages.end) {
                skip_to_tail(run, pages, a.page_shift);
            }
            area += pages.elems();
        });
        AscendC::PipeBarrier<PIPE_V>();
    }

    // The lanes from page `wrap` on find their ids in the second area.
    __aicore__ inline void skip_to_tail(const UnitRun& run, const RunPages& pages, int32_t shift) {
        const int64_t lane = (pages.wrap << shift) - run.first;
        const int64_t skipped = (pages.head_elems() - (pages.wrap - pages.first)) << shift;
        const LocalTensor<int32_t> tail = aux()[run.area];
        AscendC::Adds(tail, iota_, static_cast<int32_t>(1 - lane), run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Maxs(tail, tail, int32_t{0}, run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(tail, tail, int32_t{1}, run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(tail, tail, static_cast<int32_t>(skipped), run.lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(index()[run.area], index()[run.area], tail, run.lanes);
    }

    __aicore__ inline void from_slots(int32_t pool) {
        const PoolAddress& a = pools_[pool];
        if (a.unit_columns != 1) {
            from_scattered_slots(pool);
            return;
        }
        AscendC::Duplicate(tile(pool), int32_t{0}, lanes());
        AscendC::Duplicate(wide(), int32_t{0}, 2 * lanes());
        begin_fetch();
        each_run([&](const UnitRun& run) {
            fetch_entries(pool, slot_entry_elems(run.request, run.first + run.begin, a), run.area + run.begin,
                          static_cast<uint32_t>(run.end - run.begin), tile(pool));
        });
        end_fetch();
        if (a.is_int64 != 0) {
            AscendC::Cast(tile(pool), wide().template ReinterpretCast<int64_t>(), AscendC::RoundMode::CAST_NONE, used_);
            AscendC::PipeBarrier<PIPE_V>();
        }
    }

    // Calls fetch(first lane, lanes) for stretches of the tile and gathers what it has put into the 32-byte blocks of
    // ids(); the blocks of other lanes hold 0.
    template <typename Fetch>
    __aicore__ inline void scattered(int32_t pool, const Fetch& fetch) {
        AscendC::Muls(aux(), iota_, static_cast<int32_t>(kUbBlockBytes), static_cast<int32_t>(kScatteredLanes));
        for (uint32_t lane = 0; lane < used_; lane += kScatteredLanes) {
            const uint32_t count = min_of<uint32_t>(kScatteredLanes, used_ - lane);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Duplicate(ids(), int32_t{0}, static_cast<int32_t>(count * kLaneElems));
            begin_fetch();
            fetch(lane, count);
            end_fetch();
            AscendC::Gather(tile(pool)[lane], ids(), aux().template ReinterpretCast<uint32_t>(), uint32_t{0}, count);
        }
        AscendC::PipeBarrier<PIPE_V>();
    }

    // Lanes of a run that lie in a stretch of the tile: [begin, end) of the tile.
    struct LaneSpan {
        uint32_t begin;
        uint32_t end;
    };

    __aicore__ inline static LaneSpan within(const UnitRun& run, uint32_t lane, uint32_t count) {
        return LaneSpan{max_of<uint32_t>(lane, run.area + run.begin),
                        min_of<uint32_t>(lane + count, run.area + run.end)};
    }

    __aicore__ inline void from_scattered_slots(int32_t pool) {
        const PoolAddress& a = pools_[pool];
        const uint32_t words = a.is_int64 != 0 ? 2 : 1;
        scattered(pool, [&](uint32_t lane, uint32_t count) {
            each_run([&](const UnitRun& run) {
                const LaneSpan span = within(run, lane, count);
                if (span.begin < span.end) {
                    const int64_t entry = slot_entry_elems(run.request, run.first + (span.begin - run.area), a);
                    // The low word of an entry that fits is the entry.
                    load_strided_rows(ids()[(span.begin - lane) * kLaneElems],
                                      table(pool)[static_cast<uint64_t>(entry) * words], span.end - span.begin, 1,
                                      static_cast<int64_t>(a.unit_columns) * words, kLaneElems);
                }
            });
        });
        AscendC::ShiftRight(tile(pool), tile(pool), a.slot_shift, lanes());
    }

    // S reads the base slots and has MTE2 fetch an entry for each.
    __aicore__ inline void from_mapping(int32_t pool) {
        const PoolAddress& a = pools_[pool];
        const uint32_t words = a.is_int64 != 0 ? 2 : 1;
        const LocalTensor<int32_t> base = tile(a.base);
        order<AscendC::HardEvent::V_S>();
        scattered(pool, [&](uint32_t lane, uint32_t count) {
            each_run([&](const UnitRun& run) {
                const LaneSpan span = within(run, lane, count);
                for (uint32_t i = span.begin; i < span.end; ++i) {
                    const int32_t slot = base.GetValue(i);
                    if (slot > 0 && slot < a.row_elems) {
                        load(ids()[(i - lane) * kLaneElems], table(pool)[static_cast<uint64_t>(slot) * words], 1);
                    }
                }
            });
        });
        order<AscendC::HardEvent::S_V>();
    }

    // slot / P * ring + slot % ring, which may be 0; -1 where the base has no slot.
    __aicore__ inline void from_page_ring(int32_t pool) {
        const PoolAddress& a = pools_[pool];
        const LocalTensor<int32_t> slots = tile(pool);
        const LocalTensor<int32_t> base = tile(a.base);
        in_ring(slots, base, a.ring_shift);
        AscendC::ShiftRight(aux(), base, pools_[a.base].page_shift, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(aux(), aux(), a.ring_shift, lanes());
        AscendC::Maxs(index(), base, int32_t{0}, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(slots, slots, aux(), lanes());
        AscendC::Mins(index(), index(), int32_t{1}, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(slots, slots, int32_t{1}, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(slots, slots, index(), lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(slots, slots, int32_t{-1}, lanes());
    }

    __aicore__ inline void from_request_ring(int32_t pool) {
        const PoolAddress& a = pools_[pool];
        AscendC::Duplicate(index(), int32_t{0}, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        each_run([&](const UnitRun& run) {
            AscendC::Adds(index()[run.area], iota_, static_cast<int32_t>(run.first), run.lanes);
        });
        AscendC::PipeBarrier<PIPE_V>();
        in_ring(tile(pool), index(), a.ring_shift);
        each_run([&](const UnitRun& run) {
            AscendC::Adds(tile(pool)[run.area], tile(pool)[run.area], static_cast<int32_t>(run.request << a.ring_shift),
                          run.lanes);
        });
    }

    // target = value % ring; uses aux().
    __aicore__ inline void in_ring(const LocalTensor<int32_t>& target, const LocalTensor<int32_t>& values,
                                   int32_t shift) {
        AscendC::ShiftRight(aux(), values, shift, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(aux(), aux(), shift, lanes());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(target, values, aux(), lanes());
        AscendC::PipeBarrier<PIPE_V>();
    }

    const PoolAddress* pools_ = nullptr;
    const uint64_t* tables_ = nullptr;
    LocalTensor<int32_t> iota_, scratch_;
    const UnitRun* runs_ = nullptr;
    uint32_t num_runs_ = 0;
    uint32_t used_ = 0;
    uint32_t ready_ = 0;  // bit pool: its tile is made
};

}  // namespace dsv4::kernel
