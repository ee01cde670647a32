// The scan of a chunk of write_req_tables' rows by V, if all of them are good: what S finds row by row.
#pragma once

#include "device/iota.h"
#include "device/lane_scan.h"
#include "ops/write_req_tables/write_req_tables_index.h"

namespace dsv4::kernel {

// The inputs of a chunk.
struct WriteRowInputs {
    RowValues requests, starts, ends, c4_state_starts, c128_state_starts;
};

// Arrays of the rows, from the chunk's first row on; the totals have an entry more. Starts of the state pools and
// totals are kept where there are any.
struct ScannedWriteRows {
    LocalTensor<int32_t> requests, starts, c4_state_starts, c128_state_starts;
    LocalTensor<int32_t> totals[kWriteTotals];
};

class WriteScan {
  public:
    // scratch: kWriteScanElems.
    __aicore__ inline void init(const WriteReqTablesParams& p, const LocalTensor<int32_t>& scratch) {
        p_ = &p;
        iota_ = scratch;
        lanes_.init(iota_, scratch[static_cast<uint32_t>(kWriteIotaElems)]);
        longest_ = min_of<int64_t>(kMostScannedLength, p.max_end);
        most_requests_ = min_of<int64_t>(kMostScannedLength, p.max_requests);
    }

    __aicore__ inline void prepare() const { fill_iota(iota_, static_cast<uint32_t>(kWriteIotaElems)); }

    // Rows whose inputs have been fetched for V; false: their arrays mean nothing. S may read and write the arrays
    // afterwards. totals: of the rows before, and then of these too.
    __aicore__ inline bool chunk(uint32_t n, const WriteRowInputs& inputs, const ScannedWriteRows& to,
                                 int64_t* totals) {
        for (int32_t total = 0; total < kWriteTotals; ++total) {
            if (totals[total] > kMostScannedTotal) {
                return false;
            }
        }
        lanes_.begin(n);
        take_intervals(inputs, to);
        take_requests(inputs, to);
        for (int32_t pool = 0; p_->rings >> pool != 0; ++pool) {
            if ((p_->rings >> pool & 1) != 0) {
                must_fit_ring(pool, to);
            }
        }
        for (int32_t total = 0; total < kWriteTotals; ++total) {
            if (total_is_written(total, *p_)) {
                count(total, to, totals[total]);
            }
        }
        return lanes_.all_good() && accept(n, to, totals);
    }

  private:
    __aicore__ inline LocalTensor<int32_t> ends() const { return lanes_.area(0); }
    __aicore__ inline LocalTensor<int32_t> tokens() const { return lanes_.area(1); }
    __aicore__ inline LocalTensor<int32_t> live() const { return lanes_.area(2); }  // 0 for padding, else 1
    __aicore__ inline LocalTensor<int32_t> pages() const { return lanes_.area(3); }
    __aicore__ inline LocalTensor<int32_t> end_pages() const { return lanes_.area(4); }

    __aicore__ inline const LocalTensor<int32_t>& starts(int32_t pool, const ScannedWriteRows& to) const {
        if (p_->has_state_starts == 0 || !is_state_pool(pool)) {
            return to.starts;
        }
        return pool == kC4State ? to.c4_state_starts : to.c128_state_starts;
    }

    // Positions, and what of write_row_fault is about them. Padding at positions that no row may have is for S.
    __aicore__ inline void take_intervals(const WriteRowInputs& inputs, const ScannedWriteRows& to) const {
        lanes_.take(ends(), inputs.ends, 0, longest_);
        lanes_.take(to.starts, inputs.starts, 0, longest_);
        AscendC::Sub(pages(), ends(), to.starts, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_within(tokens(), pages(), kMostScannedTokens);
        // Where a row is wrong too, so that no sum leaves int32.
        AscendC::Add(ends(), to.starts, tokens(), lanes_.rows());
        AscendC::Mins(live(), tokens(), int32_t{1}, lanes_.rows());
        // What comes next has a barrier before it uses either.
        if (p_->has_state_starts != 0) {
            lanes_.take(to.c4_state_starts, inputs.c4_state_starts, 0, longest_);
            lanes_.take(to.c128_state_starts, inputs.c128_state_starts, 0, longest_);
        }
    }

    // Whatever the index of a padding row is.
    __aicore__ inline void take_requests(const WriteRowInputs& inputs, const ScannedWriteRows& to) const {
        lanes_.take_live(to.requests, inputs.requests, live(), most_requests_ - 1);
    }

    // fits_ring
    __aicore__ inline void must_fit_ring(int32_t pool, const ScannedWriteRows& to) const {
        const WrittenPool& a = p_->pools[pool];
        const int32_t shift = a.page_shift;
        AscendC::Adds(end_pages(), ends(), (int32_t{1} << shift) - 1, lanes_.rows());
        AscendC::ShiftRight(pages(), starts(pool, to), shift, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftRight(end_pages(), end_pages(), shift, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(pages(), end_pages(), pages(), lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_live_within(end_pages(), pages(), live(), a.columns);
    }

    // write_units, added up.
    __aicore__ inline void count(int32_t total, const ScannedWriteRows& to, int64_t before) const {
        const int32_t pool = pool_of_total(total);
        if (is_state_pool(pool)) {
            count_states(starts(pool, to));
        } else if (unit_shift(pool) == 0) {
            AscendC::Adds(lanes_.addends(), tokens(), int32_t{0}, lanes_.rows());
        } else {
            AscendC::ShiftRight(pages(), to.starts, unit_shift(pool), lanes_.rows());
            AscendC::ShiftRight(lanes_.addends(), ends(), unit_shift(pool), lanes_.rows());
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Sub(lanes_.addends(), lanes_.addends(), pages(), lanes_.rows());
        }
        lanes_.add_up(to.totals[total], before);
    }

    // Padding may have a state start before its end.
    __aicore__ inline void count_states(const LocalTensor<int32_t>& state_starts) const {
        AscendC::Sub(pages(), ends(), state_starts, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_live_within(lanes_.addends(), pages(), live(), kMostScannedTokens);
    }

    __aicore__ inline bool accept(uint32_t n, const ScannedWriteRows& to, int64_t* totals) const {
        int64_t after[kWriteTotals];
        for (int32_t total = 0; total < kWriteTotals; ++total) {
            after[total] = total_is_written(total, *p_) ? to.totals[total].GetValue(n) : 0;
        }
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            if (is_written(pool, *p_) && after[total_of_pool(pool, *p_)] > p_->pools[pool].loc_elems) {
                return false;
            }
        }
        for (int32_t total = 0; total < kWriteTotals; ++total) {
            totals[total] = after[total];
        }
        return true;
    }

    const WriteReqTablesParams* p_ = nullptr;
    LocalTensor<int32_t> iota_;
    LaneScan<kWriteChunkRows, kWriteScanAreas> lanes_;
    int64_t longest_ = 0;  // end of a row; a longer one is for S, good or bad; likewise the next
    int64_t most_requests_ = 0;
};

}  // namespace dsv4::kernel
