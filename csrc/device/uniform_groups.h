// What a step says of the groups of a ratio that it completes, where their pages lie in a table of pages
// (takes_uniform): positions, slots and RoPE rows, for which a row is looked at once.
#pragma once

#include "device/page_slots.h"
#include "device/rope_tile.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class UniformGroups {
  public:
    static constexpr uint32_t kMostTileLanes = 128;

    // units: an int32 for each lane, that nothing else uses.
    __aicore__ inline UniformGroups(StepRows& rows, const StepAddresses& memory, const LocalTensor<int32_t>& units)
        : rows_(rows),
          p_(rows.step()),
          memory_(memory),
          starts_(rows.starts()),
          requests_(rows.requests()),
          units_(units) {}

    // Of ratio 4 or 128.
    __aicore__ inline void write(int32_t which) {
        which_ = which;
        shift_ = which == 0 ? kShiftC4 : kShiftC128;
        const int32_t live = static_cast<int32_t>(rows_.total(shift_));
        // Shares meet at multiples of 32 bytes of int32.
        const StagePart part = rows_.part(kStageC4 + which);
        const BlockShare share =
            part.uneven_share(p_.capacity_groups[which], live, uniform_times(p_, which), kLaneElems);
        if (share.begin == share.end) {
            return;
        }
        rows_.next_stage();
        start();
        entry_ = static_cast<int32_t>(share.begin);
        if (entry_ < live) {
            before_ = rows_.prefix(shift_);
            find_row(0);
            load_row();
        }
        while (entry_ < share.end) {
            const int32_t lanes = min_of<int32_t>(tile_lanes_, static_cast<int32_t>(share.end) - entry_);
            const int32_t entry = entry_;
            make_tile(lanes, max_of<int32_t>(0, min_of<int32_t>(lanes, live - entry_)));
            store_tile(entry, static_cast<uint32_t>(lanes));
            entry_ = entry + lanes;
        }
    }

  private:
    // int32 of UB that a lane takes, beside RoPE rows: the areas of start().
    static constexpr uint32_t kLaneWords = 10 + static_cast<uint32_t>(kLaneElems);

    __aicore__ inline void start() {
        rope_.start(p_, memory_, kStageRope + which_, shift_);
        const uint32_t fit = (static_cast<uint32_t>(kScratchElems) - kLaneWords * kMostTileLanes) /
                             max_of<uint32_t>(1, rope_.row_words());
        const uint32_t lanes = min_of<uint32_t>(kMostTileLanes, fit - 1);
        tile_lanes_ = static_cast<int32_t>(lanes);
        const LocalTensor<int32_t> scratch = rows_.scratch();
        positions_ = scratch;
        wide_positions_ = scratch[kMostTileLanes];
        id_areas_ = scratch[3 * kMostTileLanes];
        const LocalTensor<int32_t> rest = scratch[(3 + static_cast<uint32_t>(kLaneElems)) * kMostTileLanes];
        id_bytes_ = rest;
        ids_ = rest[kMostTileLanes];
        offsets_ = rest[2 * kMostTileLanes];
        has_ = rest[3 * kMostTileLanes];
        slots_ = rest[4 * kMostTileLanes];
        wide_slots_ = rest[5 * kMostTileLanes];
        rope_.place(scratch[kLaneWords * kMostTileLanes], lanes);
        page_shift_ = p_.pools[kC4 + which_].page_shift;
        has_slots_ = wants(p_, kFieldSlots + kC4 + which_);
        if (has_slots_) {
            table_ = table_of_pages(p_.pools[kC4 + which_], memory_.tables[kC4 + which_]);
            AscendC::Muls(id_bytes_, rows_.iota(), static_cast<int32_t>(kUbBlockBytes),
                          static_cast<int32_t>(kMostTileLanes));
        }
    }

    // The first `live` lanes are groups, the others dummies.
    __aicore__ inline void make_tile(int32_t lanes, int32_t live) {
        order<AscendC::HardEvent::MTE3_V>();
        order<AscendC::HardEvent::MTE3_MTE2>();
        order<AscendC::HardEvent::V_S>();
        order<AscendC::HardEvent::V_MTE2>();
        AscendC::Duplicate(positions_, int32_t{0}, lanes);
        AscendC::Duplicate(slots_, p_.dummy_slots[kC4 + which_], lanes);
        for (int32_t lane = 0; lane < live; ++lane) {
            add_group(static_cast<uint32_t>(lane));
        }
        if (live < lanes) {
            rope_.repeat_first_rows(static_cast<uint32_t>(live), static_cast<uint32_t>(lanes - live));
        }
        order<AscendC::HardEvent::S_V>();
        order<AscendC::HardEvent::MTE2_V>();
        AscendC::PipeBarrier<PIPE_V>();
        if (live > 0) {
            AscendC::ShiftLeft(positions_, units_, shift_, live);
            if (has_slots_) {
                make_slots(live);
            }
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Cast(wide_positions_.template ReinterpretCast<int64_t>(), positions_, AscendC::RoundMode::CAST_NONE,
                      static_cast<uint32_t>(lanes));
        if (are_wide(p_, kC4 + which_)) {
            AscendC::Cast(wide_slots_.template ReinterpretCast<int64_t>(), slots_, AscendC::RoundMode::CAST_NONE,
                          static_cast<uint32_t>(lanes));
        }
        order<AscendC::HardEvent::V_MTE3>();
        order<AscendC::HardEvent::MTE2_MTE3>();
    }

    // The group of the next entry, in a lane.
    __aicore__ inline void add_group(uint32_t lane) {
        if (entry_ >= row_end_) {
            next_row();
        }
        const int32_t unit = first_ + (entry_ - row_begin_);
        units_.SetValue(lane, unit);
        if (has_slots_) {
            load(id_areas_[lane * static_cast<uint32_t>(kLaneElems)],
                 table_[static_cast<uint64_t>(table_row_ + (unit >> page_shift_))], 1);
        }
        rope_.fetch(int64_t{unit} << shift_, 1, lane, entry_, rows_.errors());
        ++entry_;
    }

    // Goes on to the row of the next entry. Few rows complete a group of 128 tokens.
    __aicore__ inline void next_row() {
        row_begin_ = row_end_;
        row_end_ = before_.GetValue(++row_ + 1);
        if (entry_ >= row_end_) {
            find_row(row_);
        }
        load_row();
    }

    // The row of the next entry, from `low` on.
    __aicore__ inline void find_row(uint32_t low) {
        uint32_t high = static_cast<uint32_t>(p_.rows.num_rows);
        while (high - low > 1) {
            const uint32_t middle = (low + high) / 2;
            if (before_.GetValue(middle) <= entry_) {
                low = middle;
            } else {
                high = middle;
            }
        }
        row_ = low;
        row_begin_ = before_.GetValue(low);
        row_end_ = before_.GetValue(low + 1);
    }

    __aicore__ inline void load_row() {
        first_ = starts_.GetValue(row_) >> shift_;
        table_row_ = requests_.GetValue(row_) * p_.pools[kC4 + which_].row_elems;
    }

    __aicore__ inline void make_slots(int32_t live) {
        AscendC::ShiftRight(offsets_, units_, page_shift_, live);
        AscendC::Gather(ids_, id_areas_, id_bytes_.template ReinterpretCast<uint32_t>(), uint32_t{0},
                        static_cast<uint32_t>(live));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(offsets_, offsets_, page_shift_, live);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(offsets_, units_, offsets_, live);
        slots_of_ids(slots_, ids_, offsets_, has_, page_shift_, live);
        const int32_t dummy = p_.dummy_slots[kC4 + which_];
        if (dummy != 0) {
            AscendC::PipeBarrier<PIPE_V>();
            put_dummies(slots_, has_, dummy, live);
        }
    }

    __aicore__ inline void store_tile(int32_t entry, uint32_t lanes) {
        if (wants(p_, kFieldGroupPositions + which_)) {
            store(out<int64_t>(kFieldGroupPositions + which_)[static_cast<uint64_t>(entry)],
                  wide_positions_.template ReinterpretCast<int64_t>(), lanes);
        }
        if (has_slots_ && are_wide(p_, kC4 + which_)) {
            store(out<int64_t>(kFieldSlots + kC4 + which_)[static_cast<uint64_t>(entry)],
                  wide_slots_.template ReinterpretCast<int64_t>(), lanes);
        } else if (has_slots_) {
            store(out<int32_t>(kFieldSlots + kC4 + which_)[static_cast<uint64_t>(entry)], slots_, lanes);
        }
        rope_.store(entry, lanes);
    }

    template <typename T>
    __aicore__ inline GlobalTensor<T> out(int32_t field) const {
        return global<T>(at(memory_.fields[field]), static_cast<uint64_t>(p_.capacity_groups[which_]));
    }

    StepRows& rows_;
    const StepParams& p_;
    const StepAddresses& memory_;
    RopeTile rope_;
    GlobalTensor<int32_t> table_;
    LocalTensor<int32_t> starts_, requests_, before_;
    LocalTensor<int32_t> units_;  // groups of the tile, counted from the request's first; S writes them
    LocalTensor<int32_t> positions_, wide_positions_;
    LocalTensor<int32_t> id_areas_, id_bytes_;  // page ids, a 32-byte block each, and where they lie
    LocalTensor<int32_t> ids_, offsets_, has_, slots_, wide_slots_;
    int32_t which_ = 0;
    int32_t shift_ = 0;
    int32_t page_shift_ = 0;
    int32_t tile_lanes_ = 0;
    bool has_slots_ = false;
    int32_t entry_ = 0;      // the next one
    uint32_t row_ = 0;       // of that one; likewise the next four
    int32_t row_begin_ = 0;  // entries
    int32_t row_end_ = 0;
    int32_t first_ = 0;      // group
    int64_t table_row_ = 0;  // where the request's row of the table begins
};

}  // namespace dsv4::kernel
