// A block's share of a flat output of a step, one entry a token or a completed group, cut into runs of one row each. Each
// run gets an area of a tile in UB.
#pragma once

#include "device/slot_tile.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class RowRuns {
  public:
    // shift: 0 for tokens, else entries are groups of 1 << shift tokens. area_step: areas start at multiples of it, a power
    // of two.
    __aicore__ inline void start(const StepRows& rows, int32_t shift, const BlockShare& share, uint32_t tile_lanes,
                                 uint32_t area_step) {
        rows_ = &rows;
        prefix_ = rows.prefix(shift);
        num_rows_ = static_cast<int32_t>(rows.params().num_rows);
        shift_ = shift;
        entry_ = static_cast<int32_t>(share.begin);
        end_ = static_cast<int32_t>(share.end);
        tile_lanes_ = static_cast<int32_t>(tile_lanes);
        area_step_ = static_cast<int32_t>(area_step);
        row_ = 0;
        find_row();
        load_row();
    }

    // Cuts the next tile; false when the share is done.
    __aicore__ inline bool next_tile() {
        count_ = 0;
        used_ = 0;
        num_equal_ = 0;
        tile_entry_ = entry_;
        while (entry_ < end_ && count_ < kMaxRuns && used_ < tile_lanes_) {
            if (entry_ >= row_end_) {
                next_row();
            }
            add(min_of(min_of(end_, row_end_) - entry_, tile_lanes_ - used_));
        }
        return count_ > 0;
    }

    // Of the tile: the first entry, from which on runs follow each other, and lanes in use, gaps between areas included.
    __aicore__ inline int64_t entry() const { return tile_entry_; }
    __aicore__ inline uint32_t used() const { return static_cast<uint32_t>(used_); }
    __aicore__ inline uint32_t count() const { return count_; }
    __aicore__ inline const UnitRun* runs() const { return runs_; }
    __aicore__ inline const UnitRun& operator[](uint32_t run) const { return runs_[run]; }

    // Calls move(first entry, area, runs, lanes) for runs next to each other that are equally long: one copy moves them
    // all.
    template <typename Move>
    __aicore__ inline void each_equal(const Move& move) const {
        int64_t entry = tile_entry_;
        for (uint32_t i = 0; i < num_equal_; ++i) {
            const UnitRun& first = runs_[equal_[i]];
            const uint32_t runs = (i + 1 < num_equal_ ? equal_[i + 1] : count_) - equal_[i];
            move(entry, first.area, runs, static_cast<uint32_t>(first.lanes));
            entry += runs * static_cast<uint32_t>(first.lanes);
        }
    }

  private:
    __aicore__ inline void add(int32_t lanes) {
        if (count_ == 0 || runs_[count_ - 1].lanes != lanes) {
            equal_[num_equal_++] = count_;
        }
        const uint32_t area = static_cast<uint32_t>(used_);
        runs_[count_++] = request_ != kNoRequest
                              ? UnitRun{request_, first_ + (entry_ - row_begin_), lanes, 0, lanes, area}
                              : UnitRun{0, 0, lanes, 0, 0, area};
        used_ += (lanes + area_step_ - 1) & -area_step_;
        entry_ += lanes;
    }

    // Behind the last row there is one of padding without an end.
    __aicore__ inline int32_t end_of_row() const {
        return row_ < num_rows_ ? prefix_.GetValue(static_cast<uint32_t>(row_) + 1) : INT32_MAX;
    }

    // Finds the row of the next entry, from row_ on.
    __aicore__ inline void find_row() {
        row_ = find(row_);
        row_begin_ = prefix_.GetValue(static_cast<uint32_t>(row_));
        row_end_ = end_of_row();
    }

    __aicore__ inline void load_row() {
        request_ = row_ < num_rows_ ? rows_->request(row_) : kNoRequest;
        if (request_ != kNoRequest) {
            first_ = rows_->start(row_) >> shift_;
        }
    }

    // Goes on to the row of the next entry. Few rows complete a group, so that those without any are not walked through.
    __aicore__ inline void next_row() {
        ++row_;
        row_begin_ = row_end_;
        row_end_ = end_of_row();
        if (entry_ >= row_end_) {
            find_row();
        }
        load_row();
    }

    // The last row from `low` on that starts at the next entry or before.
    __aicore__ inline int32_t find(int32_t low) const {
        int32_t high = num_rows_ + 1;
        while (high - low > 1) {
            const int32_t middle = (low + high) / 2;
            if (prefix_.GetValue(static_cast<uint32_t>(middle)) <= entry_) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return low;
    }

    const StepRows* rows_ = nullptr;
    LocalTensor<int32_t> prefix_;
    int64_t request_ = kNoRequest;  // of the row; likewise the next four
    int64_t first_ = 0;             // unit
    int32_t row_ = 0;
    int32_t row_begin_ = 0;  // entries
    int32_t row_end_ = 0;
    int32_t num_rows_ = 0;
    int32_t shift_ = 0;
    int32_t entry_ = 0;
    int32_t end_ = 0;
    int32_t tile_lanes_ = 0;
    int32_t area_step_ = 1;
    int32_t tile_entry_ = 0;
    int32_t used_ = 0;
    uint32_t count_ = 0;
    UnitRun runs_[kMaxRuns];
    uint32_t equal_[kMaxRuns];  // where runs of another length than the one before begin
    uint32_t num_equal_ = 0;
};

}  // namespace dsv4::kernel
