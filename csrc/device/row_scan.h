// The scan of a chunk of a step's rows by V, if all of them are good: what S finds row by row (admit_row) for 512 rows
// in the time of ten. A chunk with a row that is not is left to S, which knows what to do with it.
#pragma once

#include "device/lane_scan.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

// Arrays of the rows, from the chunk's first row on; the prefixes have an entry more.
struct ScannedRows {
    LocalTensor<int32_t> starts, counts, requests;
    LocalTensor<int32_t> tokens_before, groups_before[2];
};

// has_operands: rows may be of a form that has an operand.
template <bool has_operands>
class RowScan {
  public:
    // scratch: kRowScanElems. iota: at least kChunkRows + 1. counts_groups: whether groups before each row are wanted.
    __aicore__ inline void init(const StepParams& p, const LocalTensor<int32_t>& iota,
                                const LocalTensor<int32_t>& scratch, bool counts_groups) {
        p_ = &p;
        iota_ = iota;
        lanes_.init(iota, scratch);
        counts_groups_ = counts_groups;
        limit_ = min_of<int64_t>(kMostScannedLength, min_of(p.rows.max_context_len, p.rows.max_seq_len));
        ragged_ = has_operands && form_has_operand(p.rows.form);
        possible_ = limit_ >= 0 && p.scanned_width >= 0 && (ragged() || p.rows.width <= p.scanned_width);
    }

    // Rows [first, first + n), whose inputs have been fetched for V; false: their arrays mean nothing. S may read and
    // write the arrays afterwards.
    __aicore__ inline bool chunk(int64_t first, uint32_t n, const RowValues& requests, const RowValues& lengths,
                                 const RowValues& operands, const ScannedRows& to, StepTotals& totals) {
        if (!possible_ || totals.tokens > kMostScannedTotal) {
            return false;
        }
        lanes_.begin(n);
        row_steps(lengths, operands, to);
        take_requests(first, requests, to.requests);
        count_tokens(to.tokens_before, totals.tokens);
        if (counts_groups_) {
            count_groups(to, totals);
        }
        return lanes_.all_good() && accept(n, to, totals);
    }

  private:
    static constexpr int64_t kAreas = 5;
    static constexpr int64_t kSums = 2;  // of groups of both ratios
    static_assert(lane_scan_elems(kChunkRows, kAreas, kSums) <= kRowScanElems);

    // Whether rows have an operand.
    __aicore__ inline bool ragged() const { return has_operands && ragged_; }

    // 1 for rows that bring tokens, 0 for padding.
    __aicore__ inline const LocalTensor<int32_t>& live() const { return lanes_.area(0); }
    __aicore__ inline const LocalTensor<int32_t>& widths() const { return lanes_.area(1); }
    __aicore__ inline const LocalTensor<int32_t>& lengths() const { return lanes_.area(2); }
    __aicore__ inline const LocalTensor<int32_t>& operands() const { return lanes_.area(3); }
    __aicore__ inline const LocalTensor<int32_t>& fresh() const { return lanes_.area(4); }

    // row_step, and what of row_fault is about lengths.
    __aicore__ inline void row_steps(const RowValues& length_values, const RowValues& operand_values,
                                     const ScannedRows& to) const {
        const StepRowsParams& p = p_->rows;
        const bool final = form_is_final(p.form);
        const int32_t n = lanes_.rows();
        lanes_.take(lengths(), length_values, 0, ragged() || final ? limit_ : max_of<int64_t>(0, limit_ - p.width));
        AscendC::Mins(live(), lengths(), int32_t{1}, n);
        if (ragged()) {
            take_widths(operand_values);
            AscendC::Mins(fresh(), widths(), int32_t{1}, n);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(live(), live(), fresh(), n);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(to.counts, widths(), live(), n);
        } else {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Muls(to.counts, live(), p.width, n);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mins(live(), to.counts, int32_t{1}, n);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(to.starts, lengths(), live(), n);
        AscendC::PipeBarrier<PIPE_V>();
        if (final) {
            AscendC::Sub(fresh(), to.starts, to.counts, n);
            AscendC::PipeBarrier<PIPE_V>();
            lanes_.take_within(to.starts, fresh(), limit_);
        } else if (ragged()) {
            AscendC::Add(fresh(), to.starts, to.counts, n);
            AscendC::PipeBarrier<PIPE_V>();
            lanes_.take_within(lengths(), fresh(), limit_);
        }
    }

    __aicore__ inline void take_widths(const RowValues& values) const {
        const StepRowsParams& p = p_->rows;
        if (p.form == kFinalOffsets) {
            lanes_.take(operands(), values, 0, kMostScannedLength);
            lanes_.take(widths(), values, 1, kMostScannedLength);
            AscendC::Sub(fresh(), widths(), operands(), lanes_.rows());
        } else if (p.form == kPrefill) {
            lanes_.take(operands(), values, 0, kMostScannedLength);
            AscendC::Sub(fresh(), lengths(), operands(), lanes_.rows());
        } else {
            lanes_.take(widths(), values, 0, p_->scanned_width);
            return;
        }
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_within(widths(), fresh(), p_->scanned_width);
    }

    // A padding row's request is kNoRequest, whatever its index is.
    __aicore__ inline void take_requests(int64_t first, const RowValues& values, const LocalTensor<int32_t>& to) const {
        const StepRowsParams& p = p_->rows;
        const int64_t last = max_of<int64_t>(0, min_of<int64_t>(kMostScannedLength, p.max_requests) - 1);
        if (p.has_requests == 0) {
            AscendC::Adds(fresh(), iota_, static_cast<int32_t>(first), lanes_.rows());
            AscendC::PipeBarrier<PIPE_V>();
            lanes_.take_live_within(to, fresh(), live(), last);
        } else {
            lanes_.take_live(to, values, live(), last);
        }
        AscendC::Add(to, to, live(), lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(to, to, kNoRequest, lanes_.rows());
    }

    __aicore__ inline void count_tokens(const LocalTensor<int32_t>& before, int64_t already) const {
        const int32_t n = lanes_.rows();
        if (!ragged()) {
            AscendC::Muls(before, iota_, p_->rows.width, n + 1);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Adds(before, before, static_cast<int32_t>(already), n + 1);
            return;
        }
        AscendC::Adds(lanes_.addends(), widths(), int32_t{0}, n);
        lanes_.add_up(before, already);
    }

    __aicore__ inline void count_groups(const ScannedRows& to, const StepTotals& totals) const {
        const int32_t n = lanes_.rows();
        const LocalTensor<int32_t> first[2] = {fresh(), live()};
        const LocalTensor<int32_t> last[2] = {operands(), widths()};
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(lengths(), to.starts, to.counts, n);
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t which = 0; which < 2; ++which) {
            const int32_t shift = which == 0 ? kShiftC4 : kShiftC128;
            AscendC::ShiftRight(first[which], to.starts, shift, n);
            AscendC::ShiftRight(last[which], lengths(), shift, n);
        }
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t which = 0; which < 2; ++which) {
            AscendC::Sub(lanes_.addends(which), last[which], first[which], n);
        }
        lanes_.template add_up_all<2>(to.groups_before, totals.groups);
    }

    __aicore__ inline bool accept(uint32_t n, const ScannedRows& to, StepTotals& totals) const {
        StepTotals after{to.tokens_before.GetValue(n), {0, 0}};
        for (uint32_t which = 0; counts_groups_ && which < 2; ++which) {
            after.groups[which] = to.groups_before[which].GetValue(n);
        }
        if (after.tokens > p_->rows.num_tokens || after.groups[0] > p_->capacity_groups[0] ||
            after.groups[1] > p_->capacity_groups[1]) {
            return false;
        }
        totals = after;
        return true;
    }

    const StepParams* p_ = nullptr;
    LaneScan<kChunkRows, kAreas, kSums> lanes_;
    LocalTensor<int32_t> iota_;
    int64_t limit_ = 0;  // of a length; a longer row is one for S, good or bad
    bool counts_groups_ = false;
    bool ragged_ = false;
    bool possible_ = false;
};

}  // namespace dsv4::kernel
