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
    // scratch: kWriteIotaElems and what lane_scan_elems says.
    __aicore__ inline void init(const WriteReqTablesParams& p, const LocalTensor<int32_t>& scratch) {
        p_ = &p;
        iota_ = scratch;
        lanes_.init(iota_, scratch[static_cast<uint32_t>(kWriteIotaElems)]);
        ends_ = lanes_.area(0);
        tokens_ = lanes_.area(1);
        live_ = lanes_.area(2);
        pages_ = lanes_.area(3);
        end_pages_ = lanes_.area(4);
        longest_ = min_of<int64_t>(kMostScannedLength, p.max_end);
        most_requests_ = min_of<int64_t>(kMostScannedLength, p.max_requests);
        fill_iota(iota_, static_cast<uint32_t>(kWriteIotaElems));
    }

    // Starts on n rows.
    __aicore__ inline void begin(uint32_t n) { lanes_.begin(n); }

    // The rows, whose inputs have been fetched for V; false: their arrays mean nothing. S may read and write the arrays
    // afterwards. totals: of the rows before, and then of these too.
    __aicore__ inline bool chunk(uint32_t n, const WriteRowInputs& inputs, const ScannedWriteRows& to,
                                 int64_t* totals) {
        for (int32_t total = 0; total < kWriteTotals; ++total) {
            if (totals[total] > kMostScannedTotal) {
                return false;
            }
        }
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
    __aicore__ inline const LocalTensor<int32_t>& starts(int32_t pool, const ScannedWriteRows& to) const {
        if (p_->has_state_starts == 0 || !is_state_pool(pool)) {
            return to.starts;
        }
        return pool == kC4State ? to.c4_state_starts : to.c128_state_starts;
    }

    // Positions, and what of write_row_fault is about them. Padding at positions that no row may have is for S.
    __aicore__ inline void take_intervals(const WriteRowInputs& inputs, const ScannedWriteRows& to) const {
        lanes_.take(ends_, inputs.ends, 0, longest_);
        lanes_.take(to.starts, inputs.starts, 0, longest_);
        AscendC::Sub(pages_, ends_, to.starts, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_within(tokens_, pages_, kMostScannedTokens);
        // Where a row is wrong too, so that no sum leaves int32.
        AscendC::Add(ends_, to.starts, tokens_, lanes_.rows());
        AscendC::Mins(live_, tokens_, int32_t{1}, lanes_.rows());
        // What comes next has a barrier before it uses either.
        if (p_->has_state_starts != 0) {
            lanes_.take(to.c4_state_starts, inputs.c4_state_starts, 0, longest_);
            lanes_.take(to.c128_state_starts, inputs.c128_state_starts, 0, longest_);
        }
    }

    // Whatever the index of a padding row is.
    __aicore__ inline void take_requests(const WriteRowInputs& inputs, const ScannedWriteRows& to) const {
        lanes_.take_live(to.requests, inputs.requests, live_, most_requests_ - 1);
    }

    // fits_ring
    __aicore__ inline void must_fit_ring(int32_t pool, const ScannedWriteRows& to) const {
        const WrittenPool& a = p_->pools[pool];
        const int32_t shift = a.page_shift;
        AscendC::Adds(end_pages_, ends_, (int32_t{1} << shift) - 1, lanes_.rows());
        AscendC::ShiftRight(pages_, starts(pool, to), shift, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftRight(end_pages_, end_pages_, shift, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(pages_, end_pages_, pages_, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_live_within(end_pages_, pages_, live_, a.columns);
    }

    // write_units, added up.
    __aicore__ inline void count(int32_t total, const ScannedWriteRows& to, int64_t before) const {
        const int32_t pool = pool_of_total(total);
        if (is_state_pool(pool)) {
            count_states(starts(pool, to));
        } else if (unit_shift(pool) == 0) {
            AscendC::Adds(lanes_.addends(), tokens_, int32_t{0}, lanes_.rows());
        } else {
            AscendC::ShiftRight(pages_, to.starts, unit_shift(pool), lanes_.rows());
            AscendC::ShiftRight(lanes_.addends(), ends_, unit_shift(pool), lanes_.rows());
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Sub(lanes_.addends(), lanes_.addends(), pages_, lanes_.rows());
        }
        lanes_.add_up(to.totals[total], before);
    }

    // Padding may have a state start before its end.
    __aicore__ inline void count_states(const LocalTensor<int32_t>& state_starts) const {
        AscendC::Sub(pages_, ends_, state_starts, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_live_within(lanes_.addends(), pages_, live_, kMostScannedTokens);
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
    LocalTensor<int32_t> iota_, ends_, tokens_, pages_, end_pages_;
    LocalTensor<int32_t> live_;  // 0 for padding, else 1
    LaneScan<kWriteChunkRows, kWriteScanAreas> lanes_;
    int64_t longest_ = 0;  // end of a row; a longer one is for S, good or bad; likewise the next
    int64_t most_requests_ = 0;
};

}  // namespace dsv4::kernel
