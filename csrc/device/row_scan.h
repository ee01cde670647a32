// The scan of a chunk of a step's rows by V, if all of them are good: what S finds row by row (admit_row) for 512 rows
// in the time of ten. Whatever is wrong with a row shows as a number below 0 in its lane; a chunk with such a row is left
// to S, which knows what to do with it.
#pragma once

#include "device/row_values.h"
#include "ops/step/step_index.h"

namespace dsv4::kernel {

// Arrays of the rows, from the chunk's first row on; the prefixes have an entry more.
struct ScannedRows {
    LocalTensor<int32_t> starts, counts, requests;
    LocalTensor<int32_t> tokens_before, groups_before[2];
};

class RowScan {
  public:
    static constexpr uint32_t kLanes = static_cast<uint32_t>(kChunkRows);

    // scratch: kRowScanElems. iota: at least kLanes + 1.
    __aicore__ inline void init(const StepParams& p, const LocalTensor<int32_t>& iota,
                                const LocalTensor<int32_t>& scratch) {
        p_ = &p;
        iota_ = iota;
        scratch_ = scratch;
        limit_ = min_of(kMostScannedLength, min_of(p.rows.max_context_len, p.rows.max_seq_len));
        most_requests_ = min_of(kMostScannedLength, p.rows.max_requests);
        widest_ = min_of<int64_t>(kMostScannedTokens, unchecked_width(p));
        possible_ = widest_ >= 0 && (form_has_operand(p.rows.form) || p.rows.width <= widest_);
    }

    // Rows [first, first + n), whose inputs have been fetched for V; false: their arrays mean nothing. S may read and
    // write the arrays afterwards.
    __aicore__ inline bool chunk(int64_t first, uint32_t n, const RowValues& requests, const RowValues& lengths,
                                 const RowValues& operands, const ScannedRows& to, StepTotals& totals) {
        if (!possible_) {
            return false;
        }
        n_ = static_cast<int32_t>(n);
        AscendC::Duplicate(worst(), int32_t{0}, static_cast<int32_t>(kLanes));
        AscendC::Muls(offsets(4), iota_, int32_t{4}, n_ + 1);
        AscendC::Muls(offsets(8), iota_, int32_t{8}, n_ + 1);
        AscendC::PipeBarrier<PIPE_V>();
        row_steps(lengths, operands, to);
        take_requests(first, requests, to.requests);
        count(to, totals);
        fold();
        order<AscendC::HardEvent::V_S>();
        return accept(n, to, totals);
    }

  private:
    // Buffers of a number for each row, and two for a scan with zeros before them.
    static constexpr uint32_t kArea = kLanes + static_cast<uint32_t>(kLaneElems);
    static constexpr uint32_t kZeros = kLanes / 2;

    __aicore__ inline LocalTensor<int32_t> area(uint32_t number) const { return scratch_[number * kArea]; }
    __aicore__ inline LocalTensor<int32_t> worst() const { return area(0); }
    // Of an element of `bytes` bytes: iota times that.
    __aicore__ inline LocalTensor<int32_t> offsets(uint32_t bytes) const { return area(bytes == 4 ? 1 : 2); }
    __aicore__ inline LocalTensor<int32_t> live() const { return area(3); }
    __aicore__ inline LocalTensor<int32_t> widths() const { return area(4); }
    __aicore__ inline LocalTensor<int32_t> aux() const { return area(5); }
    __aicore__ inline LocalTensor<int32_t> lengths() const { return area(6); }
    __aicore__ inline LocalTensor<int32_t> operands() const { return area(7); }
    __aicore__ inline LocalTensor<int32_t> ends() const { return area(8); }
    __aicore__ inline LocalTensor<int32_t> sums(uint32_t turn) const { return scratch_[9 * kArea + turn * (kZeros + kArea)]; }
    static_assert(9 * kArea + 2 * (kZeros + kArea) <= kRowScanElems);

    __aicore__ inline void gather(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from, uint32_t elem_bytes,
                                  uint32_t base_bytes, int32_t elems) const {
        AscendC::Gather(to, from, offsets(elem_bytes).template ReinterpretCast<uint32_t>(), base_bytes,
                        static_cast<uint32_t>(elems));
        AscendC::PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void must_not_be_negative(const LocalTensor<int32_t>& values) const {
        AscendC::Min(worst(), worst(), values, n_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // Uses aux().
    __aicore__ inline void must_not_exceed(const LocalTensor<int32_t>& values, int64_t most) const {
        AscendC::Muls(aux(), values, int32_t{-1}, n_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(aux(), aux(), static_cast<int32_t>(most), n_);
        AscendC::PipeBarrier<PIPE_V>();
        must_not_be_negative(aux());
    }

    __aicore__ inline void clamp(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from, int32_t least,
                                 int64_t most) const {
        AscendC::Maxs(to, from, least, n_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(to, to, static_cast<int32_t>(most), n_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // The low words, as many entries after each row's own as `shift` says. -1 in a lane of aux() whose high word is not 0.
    __aicore__ inline void narrow(const LocalTensor<int32_t>& to, const RowValues& values, uint32_t shift) const {
        const uint32_t bytes = values.is_int64() ? 8 : 4;
        gather(to, values.words(), bytes, shift * bytes, n_);
        if (!values.is_int64()) {
            AscendC::Duplicate(aux(), int32_t{0}, n_);
            AscendC::PipeBarrier<PIPE_V>();
            return;
        }
        gather(aux(), values.words(), bytes, shift * bytes + 4, n_);
        clamp(aux(), aux(), -1, 1);
        AscendC::Mul(aux(), aux(), aux(), n_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(aux(), aux(), int32_t{-1}, n_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // Lengths, widths, prefixes or offsets, of padding rows too.
    __aicore__ inline void take(const LocalTensor<int32_t>& to, const RowValues& values, uint32_t shift) const {
        narrow(to, values, shift);
        must_not_be_negative(aux());
        must_not_be_negative(to);
        AscendC::Maxs(to, to, int32_t{0}, n_);
        AscendC::PipeBarrier<PIPE_V>();
        must_not_exceed(to, kMostScannedLength);
        AscendC::Mins(to, to, static_cast<int32_t>(kMostScannedLength), n_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // row_step, and what of row_fault is about lengths.
    __aicore__ inline void row_steps(const RowValues& length_values, const RowValues& operand_values, const ScannedRows& to) {
        const StepRowsParams& p = p_->rows;
        take(lengths(), length_values, 0);
        if (!form_has_operand(p.form)) {
            AscendC::Duplicate(widths(), static_cast<int32_t>(p.width), n_);
        } else if (p.form == kFinalOffsets) {
            take(operands(), operand_values, 0);
            take(widths(), operand_values, 1);
            AscendC::Sub(widths(), widths(), operands(), n_);
        } else {
            take(operands(), operand_values, 0);
            if (p.form == kPrefill) {
                AscendC::Sub(widths(), lengths(), operands(), n_);
            } else {
                AscendC::Adds(widths(), operands(), int32_t{0}, n_);
            }
        }
        AscendC::PipeBarrier<PIPE_V>();
        must_not_be_negative(widths());
        must_not_exceed(widths(), widest_);
        clamp(widths(), widths(), 0, widest_);
        // 1 for rows that bring tokens, 0 for padding.
        AscendC::Mins(live(), lengths(), int32_t{1}, n_);
        AscendC::Mins(aux(), widths(), int32_t{1}, n_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(live(), live(), aux(), n_);
        if (form_is_final(p.form)) {
            AscendC::Sub(lengths(), lengths(), widths(), n_);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(to.starts, lengths(), live(), n_);
        AscendC::Mul(to.counts, widths(), live(), n_);
        AscendC::PipeBarrier<PIPE_V>();
        must_not_be_negative(to.starts);
        AscendC::Add(ends(), to.starts, to.counts, n_);
        AscendC::PipeBarrier<PIPE_V>();
        must_not_exceed(ends(), limit_);
    }

    // A padding row's request is 0, whatever its index is.
    __aicore__ inline void take_requests(int64_t first, const RowValues& values, const LocalTensor<int32_t>& to) const {
        const StepRowsParams& p = p_->rows;
        if (p.has_requests != 0) {
            narrow(to, values, 0);
            AscendC::Mul(aux(), aux(), live(), n_);
            AscendC::PipeBarrier<PIPE_V>();
            must_not_be_negative(aux());
        } else {
            AscendC::Adds(to, iota_, static_cast<int32_t>(first), n_);
            AscendC::PipeBarrier<PIPE_V>();
        }
        clamp(to, to, -1, most_requests_);
        AscendC::Mul(to, to, live(), n_);
        AscendC::PipeBarrier<PIPE_V>();
        must_not_be_negative(to);
        must_not_exceed(to, most_requests_ - 1);
    }

    __aicore__ inline void count(const ScannedRows& to, const StepTotals& totals) const {
        if (form_has_operand(p_->rows.form)) {
            AscendC::Adds(sums(0)[kZeros], widths(), int32_t{0}, n_);
            add_up(to.tokens_before, totals.tokens);
        } else {
            AscendC::Muls(to.tokens_before, iota_, static_cast<int32_t>(p_->rows.width), n_ + 1);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Adds(to.tokens_before, to.tokens_before, static_cast<int32_t>(totals.tokens), n_ + 1);
        }
        for (int32_t which = 0; which < 2; ++which) {
            const int32_t shift = which == 0 ? kShiftC4 : kShiftC128;
            AscendC::ShiftRight(aux(), to.starts, shift, n_);
            AscendC::ShiftRight(operands(), ends(), shift, n_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Sub(sums(0)[kZeros], operands(), aux(), n_);
            add_up(to.groups_before[which], totals.groups[which]);
        }
    }

    // to[i] = before + the sum of the first i numbers of sums(0), by doubling. Numbers less than 8 apart do not lie at
    // 32-byte boundaries, so that V gathers them.
    __aicore__ inline void add_up(const LocalTensor<int32_t>& to, int64_t before) const {
        AscendC::Duplicate(sums(0), int32_t{0}, static_cast<int32_t>(kZeros));
        AscendC::Duplicate(sums(1), int32_t{0}, static_cast<int32_t>(kZeros));
        AscendC::PipeBarrier<PIPE_V>();
        uint32_t turn = 0;
        for (uint32_t distance = 1; distance < static_cast<uint32_t>(n_); distance *= 2) {
            const LocalTensor<int32_t> from = sums(turn);
            turn = 1 - turn;
            if (distance < static_cast<uint32_t>(kLaneElems)) {
                gather(aux(), from, 4, (kZeros - distance) * 4, n_);
                AscendC::Add(sums(turn)[kZeros], from[kZeros], aux(), n_);
            } else {
                AscendC::Add(sums(turn)[kZeros], from[kZeros], from[kZeros - distance], n_);
            }
            AscendC::PipeBarrier<PIPE_V>();
        }
        gather(to, sums(turn), 4, (kZeros - 1) * 4, n_ + 1);
        AscendC::Adds(to, to, static_cast<int32_t>(before), n_ + 1);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // The least lane of worst() ends up among its first 8.
    __aicore__ inline void fold() const {
        int32_t lanes = static_cast<int32_t>(kLanes);
        while (lanes / 2 >= n_ && lanes > kLaneElems) {
            lanes /= 2;
        }
        while (lanes > kLaneElems) {
            lanes /= 2;
            AscendC::Min(worst(), worst(), worst()[static_cast<uint32_t>(lanes)], lanes);
            AscendC::PipeBarrier<PIPE_V>();
        }
    }

    __aicore__ inline bool accept(uint32_t n, const ScannedRows& to, StepTotals& totals) const {
        for (uint32_t lane = 0; lane < static_cast<uint32_t>(kLaneElems); ++lane) {
            if (worst().GetValue(lane) < 0) {
                return false;
            }
        }
        const StepTotals after{to.tokens_before.GetValue(n),
                               {to.groups_before[0].GetValue(n), to.groups_before[1].GetValue(n)}};
        if (after.tokens > p_->rows.num_tokens || after.groups[0] > p_->capacity_groups[0] ||
            after.groups[1] > p_->capacity_groups[1]) {
            return false;
        }
        totals = after;
        return true;
    }

    const StepParams* p_ = nullptr;
    LocalTensor<int32_t> iota_, scratch_;
    int64_t limit_ = 0;  // of a length; a longer row is one for S, good or bad; likewise the next two
    int64_t most_requests_ = 0;
    int64_t widest_ = 0;
    bool possible_ = false;
    int32_t n_ = 0;
};

}  // namespace dsv4::kernel
