// Runs of segments that are alike: of one pool and source, of equally few units, one after another in the output and in
// the ring. V finds where their pages stand, and makes their slots, for all of a run at once.
#pragma once

#include "device/lane_scan.h"
#include "ops/reserve_extend/reserve_extend_index.h"

namespace dsv4::kernel {

// Global memory of the pools.
struct ReservedMemory {
    GlobalTensor<int32_t> free_pages, tables[kNumPools], slots[kNumPools];
};

struct AlikeRun {
    ReserveSegment first;
    uint32_t segments;
    uint32_t place;  // of the first segment in the buffers

    __aicore__ inline int32_t units() const { return first.end - first.begin; }  // of each segment
};

class AlikeSegments {
  public:
    // iota: 0, 1, .. as far as kAlikeSegments * 8. scratch: kAlikeElems.
    __aicore__ inline AlikeSegments(const ReserveExtendParams& p, const ReservedMemory& memory,
                                    const LocalTensor<int32_t>& iota, const LocalTensor<int32_t>& scratch)
        : p_(p), memory_(memory), iota_(iota), segment_bytes_(scratch), lane_bytes_(scratch[kSegments]) {
        lane_units_ = lane_bytes_[kLanes];
        page_ids_ = lane_units_[kLanes];
        slots_ = page_ids_[kLanes];
        units_ = slots_[kLanes];
        entries_ = units_[kLanes];
        scan_.init(iota, entries_[kSegments]);
    }

    // Where segments of 32 bytes start, for each of them and for each lane of a 32-byte block; and which lane it is. V
    // has a barrier before it looks at a run.
    __aicore__ inline void prepare() const {
        AscendC::ShiftLeft(segment_bytes_, iota_, kSegmentShift, static_cast<int32_t>(kSegments));
        AscendC::ShiftRight(units_, iota_, kLaneShift, static_cast<int32_t>(kLanes));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(lane_bytes_, units_, kSegmentShift, static_cast<int32_t>(kLanes));
        AscendC::ShiftLeft(lane_units_, units_, kLaneShift, static_cast<int32_t>(kLanes));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(lane_units_, iota_, lane_units_, static_cast<int32_t>(kLanes));
    }

    // Fetches the pages of a run; false, and nothing is done, where V does not vouch for all of its segments, of which
    // the first is number `index` in `segments`.
    __aicore__ inline bool fetch(const AlikeRun& run, const LocalTensor<int32_t>& segments, uint32_t index) {
        if (!may_be_good(run) || !find_entries(run, segments, index)) {
            return false;
        }
        const ReserveSegment& s = run.first;
        const LocalTensor<int32_t> to = page_ids_[run.place * kLane];
        if (s.source == kTakePages) {
            load_rows(to, memory_.free_pages[free_page_elems(s, s.begin, p_.pools)], run.segments, 1, 0, kLane);
            return true;
        }
        const GlobalTensor<int32_t>& table = memory_.tables[s.pool];
        for (uint32_t i = 0; i < run.segments; ++i) {
            load(to[i * kLane], table[entries_.GetValue(run.place + i)], 1);
        }
        return true;
    }

    // Makes the slots of a run, whose pages are there for V, for MTE3 to store.
    __aicore__ inline void make_slots(const AlikeRun& run) const {
        const int32_t shift = p_.pools.page_shift[run.first.pool];
        const int32_t lanes = static_cast<int32_t>(run.segments * kLane);
        const LocalTensor<int32_t> slots = slots_[run.place * kLane];
        const LocalTensor<int32_t> units = units_[run.place * kLane];
        AscendC::Gather(slots, page_ids_[run.place * kLane], lane_bytes_.template ReinterpretCast<uint32_t>(), 0u,
                        static_cast<uint32_t>(lanes));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(slots, slots, shift, lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(slots, slots, units, lanes);
    }

    // Behind V.
    __aicore__ inline void store(const AlikeRun& run) const {
        const ReserveSegment& s = run.first;
        store_rows(memory_.slots[s.pool][static_cast<uint64_t>(slot_elems(s, s.begin))], slots_[run.place * kLane],
                   run.segments, static_cast<uint32_t>(run.units()), kLane);
        if (s.source == kTakePages) {
            const GlobalTensor<int32_t>& table = memory_.tables[s.pool];
            for (uint32_t i = 0; i < run.segments; ++i) {
                kernel::store(table[entries_.GetValue(run.place + i)], page_ids_[(run.place + i) * kLane], 1);
            }
        }
    }

  private:
    static constexpr uint32_t kSegments = static_cast<uint32_t>(kAlikeSegments);
    static constexpr uint32_t kLane = static_cast<uint32_t>(kLaneElems);
    static constexpr uint32_t kLanes = kSegments * kLane;
    static constexpr int32_t kSegmentShift = 5;  // log2 of its bytes
    static constexpr int32_t kLaneShift = 3;
    static_assert(sizeof(ReserveSegment) == 1 << kSegmentShift && kLaneElems == 1 << kLaneShift);
    // Fields of a segment.
    static constexpr uint32_t kPool = 0;
    static constexpr uint32_t kRequest = 1;
    static constexpr uint32_t kBegin = 2;

    // What a run's first segment, whose pool there is, and its length say.
    __aicore__ inline bool may_be_good(const AlikeRun& run) const {
        const ReserveSegment& s = run.first;
        const int64_t count = run.segments;
        return table_elems(s.pool, p_.pools) <= INT32_MAX && s.out_begin >= 0 &&
               s.out_begin <= p_.num_slots[s.pool] - count * run.units() &&
               (s.source == kKeepSlots || (s.source == kTakePages && s.ring_position >= 0 &&
                                           s.ring_position <= p_.pools.num_pages[s.pool] - count));
    }

    // Number `field` of each segment's fields.
    __aicore__ inline void get(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& segments, uint32_t index,
                               uint32_t field, uint32_t count) const {
        AscendC::Gather(to, segments, segment_bytes_.template ReinterpretCast<uint32_t>(),
                        (index * kLane + field) * static_cast<uint32_t>(sizeof(int32_t)), count);
    }

    // The entries of the run's pages in their table, which S may read, and the offsets of its units in them. False
    // where a segment is not of the run's pool, or its page or request is not good.
    __aicore__ inline bool find_entries(const AlikeRun& run, const LocalTensor<int32_t>& segments, uint32_t index) {
        const ReserveSegment& s = run.first;
        const int32_t shift = p_.pools.page_shift[s.pool];
        const int32_t columns = p_.pools.columns[s.pool];
        const int32_t n = static_cast<int32_t>(run.segments);
        const int32_t units_left = (int32_t{1} << shift) - run.units();
        if (columns == 0 || units_left < 0) {
            return false;
        }
        const LocalTensor<int32_t> requests = scan_.area(0), pages = scan_.area(1), offsets = scan_.area(2),
                                   given = scan_.area(3);
        const LocalTensor<int32_t> entries = entries_[run.place];
        // S has read what V has made of the run before.
        order<AscendC::HardEvent::S_V>();
        scan_.begin(run.segments);
        get(pages, segments, index, kPool, run.segments);
        get(requests, segments, index, kRequest, run.segments);
        get(offsets, segments, index, kBegin, run.segments);
        AscendC::Gather(units_[run.place * kLane], segments, lane_bytes_.template ReinterpretCast<uint32_t>(),
                        (index * kLane + kBegin) * static_cast<uint32_t>(sizeof(int32_t)), run.segments * kLane);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(pages, pages, -s.pool, n);
        AscendC::ShiftRight(given, offsets, shift, n);
        AscendC::PipeBarrier<PIPE_V>();
        scan_.must_be_zero(pages);
        scan_.take_within(pages, given, is_windowed_pool(s.pool) ? kMostScannedPage : columns - 1);
        scan_.take_within(entries, requests, p_.pools.max_requests - 1);
        AscendC::ShiftLeft(given, pages, shift, n);
        AscendC::Muls(entries, entries, static_cast<int32_t>(p_.pools.row_elems[s.pool]), n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(given, offsets, given, n);
        AscendC::PipeBarrier<PIPE_V>();
        scan_.take_within(offsets, given, s.source == kTakePages ? 0 : units_left);
        if (is_windowed_pool(s.pool)) {
            find_columns(pages, columns, n);
        }
        AscendC::Add(entries, entries, pages, n);
        spread_units(run, shift);
        return scan_.all_good();
    }

    // pages = pages % columns, by float32: (page + 1/2) / columns is never so close to an integer that its rounding
    // matters.
    __aicore__ inline void find_columns(const LocalTensor<int32_t>& pages, int32_t columns, int32_t n) const {
        const LocalTensor<float> quotients = scan_.area(2).template ReinterpretCast<float>();
        const LocalTensor<float> divisors = scan_.area(3).template ReinterpretCast<float>();
        const LocalTensor<int32_t> turns = scan_.area(3);
        AscendC::Cast(quotients, pages, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(n));
        AscendC::Duplicate(divisors, static_cast<float>(columns), n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(quotients, quotients, 0.5f, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Div(quotients, quotients, divisors, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Cast(turns, quotients, AscendC::RoundMode::CAST_FLOOR, static_cast<uint32_t>(n));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(turns, turns, columns, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(pages, pages, turns, n);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // The units of all lanes as offsets in their page.
    __aicore__ inline void spread_units(const AlikeRun& run, int32_t shift) const {
        const int32_t lanes = static_cast<int32_t>(run.segments * kLane);
        const LocalTensor<int32_t> units = units_[run.place * kLane];
        const LocalTensor<int32_t> starts = slots_[run.place * kLane];
        AscendC::ShiftRight(starts, units, shift, lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(starts, starts, shift, lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(units, units, starts, lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(units, units, lane_units_, lanes);
    }

    const ReserveExtendParams& p_;
    const ReservedMemory& memory_;
    LocalTensor<int32_t> iota_;
    LocalTensor<int32_t> segment_bytes_, lane_bytes_, lane_units_;  // as prepared
    LocalTensor<int32_t> page_ids_, slots_, units_, entries_;       // of the runs; units count from their page's start
    LaneScan<kAlikeSegments, kAlikeAreas> scan_;
};

}  // namespace dsv4::kernel
