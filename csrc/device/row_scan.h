// The scan of a chunk of a step's rows by V, if all of them are good: what S finds row by row (admit_row) for 512 rows
// in the time of ten. Whatever is wrong with a row leaves a bit in its lane; a chunk with such a row is left to S, which
// knows what to do with it.
#pragma once

#include "device/row_values.h"
#include "ops/step/step_index.h"

namespace dsv4::kernel {

constexpr int32_t kNoRequest = -1;

// Arrays of the rows, from the chunk's first row on; the prefixes have an entry more.
struct ScannedRows {
    LocalTensor<int32_t> starts, counts, requests;
    LocalTensor<int32_t> tokens_before, groups_before[2];
};

class RowScan {
  public:
    static constexpr uint32_t kLanes = static_cast<uint32_t>(kChunkRows);

    // scratch: kRowScanElems. iota: at least kLanes + 1. counts_groups: whether groups before each row are wanted.
    __aicore__ inline void init(const StepParams& p, const LocalTensor<int32_t>& iota,
                                const LocalTensor<int32_t>& scratch, bool counts_groups) {
        p_ = &p;
        iota_ = iota;
        scratch_ = scratch;
        counts_groups_ = counts_groups;
        limit_ = min_of<int64_t>(kMostScannedLength, min_of(p.rows.max_context_len, p.rows.max_seq_len));
        ragged_ = form_has_operand(p.rows.form);
        possible_ = limit_ >= 0 && p.scanned_width >= 0 && (ragged_ || p.rows.width <= p.scanned_width);
    }

    // Rows [first, first + n), whose inputs have been fetched for V; false: their arrays mean nothing. S may read and
    // write the arrays afterwards.
    __aicore__ inline bool chunk(int64_t first, uint32_t n, const RowValues& requests, const RowValues& lengths,
                                 const RowValues& operands, const ScannedRows& to, StepTotals& totals) {
        if (!possible_) {
            return false;
        }
        n_ = static_cast<int32_t>(n);
        AscendC::Duplicate(faults(), int32_t{0}, static_cast<int32_t>(kLanes));
        AscendC::Muls(offsets(4), iota_, int32_t{4}, max_of(n_ + 1, second_sums() + n_));
        AscendC::Muls(offsets(8), iota_, int32_t{8}, n_ + 1);
        AscendC::PipeBarrier<PIPE_V>();
        row_steps(lengths, operands, to);
        take_requests(first, requests, to.requests);
        count_tokens(to.tokens_before, totals.tokens);
        if (counts_groups_) {
            count_groups(to, totals);
        }
        fold();
        order<AscendC::HardEvent::V_S>();
        return accept(n, to, totals);
    }

  private:
    // Buffers of a number for each row; of sums, of zeros and numbers of both ratios.
    static constexpr uint32_t kArea = kLanes + static_cast<uint32_t>(kLaneElems);
    static constexpr uint32_t kZeros = kLanes / 2;
    static constexpr uint32_t kSums = kZeros + 4 * kLanes;

    __aicore__ inline LocalTensor<int32_t> area(uint32_t number) const { return scratch_[number * kArea]; }
    __aicore__ inline LocalTensor<int32_t> faults() const { return area(0); }
    __aicore__ inline LocalTensor<int32_t> live() const { return area(1); }
    __aicore__ inline LocalTensor<int32_t> widths() const { return area(2); }
    __aicore__ inline LocalTensor<int32_t> lengths() const { return area(3); }
    __aicore__ inline LocalTensor<int32_t> operands() const { return area(4); }
    __aicore__ inline LocalTensor<int32_t> fresh() const { return area(5); }  // as read, not checked yet
    __aicore__ inline LocalTensor<int32_t> aux() const { return area(6); }
    // Of an element of `bytes` bytes: iota times that; of 4 bytes as many as there are sums.
    __aicore__ inline LocalTensor<int32_t> offsets(uint32_t bytes) const { return area(bytes == 8 ? 7 : 8); }
    __aicore__ inline LocalTensor<int32_t> sums(uint32_t turn) const {
        return scratch_[8 * kArea + 4 * kLanes + turn * kSums];
    }
    static_assert(8 * kArea + 4 * kLanes + 2 * kSums <= kRowScanElems);
    static_assert(4 * kLanes <= kTileEntries, "of iota");

    __aicore__ inline void gather(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from, uint32_t elem_bytes,
                                  uint32_t base_bytes, int32_t elems) const {
        AscendC::Gather(to, from, offsets(elem_bytes).template ReinterpretCast<uint32_t>(), base_bytes,
                        static_cast<uint32_t>(elems));
        AscendC::PipeBarrier<PIPE_V>();
    }

    // Numbers that are not 0 are faults.
    __aicore__ inline void must_be_zero(const LocalTensor<int32_t>& values) const {
        AscendC::Or(faults().template ReinterpretCast<uint16_t>(), faults().template ReinterpretCast<uint16_t>(),
                    values.template ReinterpretCast<uint16_t>(), 2 * n_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // to = from, another buffer, cut off at 0 and `most`; what is cut off is a fault. Uses aux().
    __aicore__ inline void take_within(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from,
                                       int64_t most) const {
        AscendC::Maxs(to, from, int32_t{0}, n_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(to, to, static_cast<int32_t>(most), n_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(aux(), from, to, n_);
        AscendC::PipeBarrier<PIPE_V>();
        must_be_zero(aux());
    }

    // Lengths, widths, prefixes or offsets, `shift` entries after each row's own, of padding rows too.
    __aicore__ inline void take(const LocalTensor<int32_t>& to, const RowValues& values, uint32_t shift,
                                int64_t most) const {
        const uint32_t bytes = values.is_int64() ? 8 : 4;
        if (values.is_int64()) {
            gather(fresh(), values.words(), bytes, shift * bytes + 4, n_);
            must_be_zero(fresh());
        }
        gather(fresh(), values.words(), bytes, shift * bytes, n_);
        take_within(to, fresh(), most);
    }

    // row_step, and what of row_fault is about lengths.
    __aicore__ inline void row_steps(const RowValues& length_values, const RowValues& operand_values,
                                     const ScannedRows& to) const {
        const StepRowsParams& p = p_->rows;
        const bool final = form_is_final(p.form);
        take(lengths(), length_values, 0, ragged_ || final ? limit_ : max_of<int64_t>(0, limit_ - p.width));
        // 1 for rows that bring tokens, 0 for padding.
        AscendC::Mins(live(), lengths(), int32_t{1}, n_);
        if (ragged_) {
            take_widths(operand_values);
            AscendC::Mins(aux(), widths(), int32_t{1}, n_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(live(), live(), aux(), n_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(to.counts, widths(), live(), n_);
        } else {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Muls(to.counts, live(), static_cast<int32_t>(p.width), n_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mins(live(), to.counts, int32_t{1}, n_);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(to.starts, lengths(), live(), n_);
        AscendC::PipeBarrier<PIPE_V>();
        if (final) {
            AscendC::Sub(fresh(), to.starts, to.counts, n_);
            AscendC::PipeBarrier<PIPE_V>();
            take_within(to.starts, fresh(), limit_);
        } else if (ragged_) {
            AscendC::Add(fresh(), to.starts, to.counts, n_);
            AscendC::PipeBarrier<PIPE_V>();
            take_within(lengths(), fresh(), limit_);
        }
    }

    __aicore__ inline void take_widths(const RowValues& values) const {
        const StepRowsParams& p = p_->rows;
        if (p.form == kFinalOffsets) {
            take(operands(), values, 0, kMostScannedLength);
            take(widths(), values, 1, kMostScannedLength);
            AscendC::Sub(fresh(), widths(), operands(), n_);
        } else if (p.form == kPrefill) {
            take(operands(), values, 0, kMostScannedLength);
            AscendC::Sub(fresh(), lengths(), operands(), n_);
        } else {
            take(widths(), values, 0, p_->scanned_width);
            return;
        }
        AscendC::PipeBarrier<PIPE_V>();
        take_within(widths(), fresh(), p_->scanned_width);
    }

    // A padding row's request is kNoRequest, whatever its index is.
    __aicore__ inline void take_requests(int64_t first, const RowValues& values, const LocalTensor<int32_t>& to) const {
        const StepRowsParams& p = p_->rows;
        if (p.has_requests == 0) {
            AscendC::Adds(fresh(), iota_, static_cast<int32_t>(first), n_);
            AscendC::PipeBarrier<PIPE_V>();
        } else {
            const uint32_t bytes = values.is_int64() ? 8 : 4;
            if (values.is_int64()) {
                gather(fresh(), values.words(), bytes, 4, n_);
                AscendC::Mul(fresh(), fresh(), live(), n_);
                AscendC::PipeBarrier<PIPE_V>();
                must_be_zero(fresh());
            }
            gather(fresh(), values.words(), bytes, 0, n_);
        }
        AscendC::Mul(fresh(), fresh(), live(), n_);
        AscendC::PipeBarrier<PIPE_V>();
        take_within(to, fresh(), max_of<int64_t>(0, min_of<int64_t>(kMostScannedLength, p.max_requests) - 1));
        AscendC::Add(to, to, live(), n_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(to, to, kNoRequest, n_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void count_tokens(const LocalTensor<int32_t>& before, int64_t already) const {
        if (!ragged_) {
            AscendC::Muls(before, iota_, static_cast<int32_t>(p_->rows.width), n_ + 1);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Adds(before, before, static_cast<int32_t>(already), n_ + 1);
            return;
        }
        clear_sums();
        AscendC::Adds(sums(0)[kZeros], widths(), int32_t{0}, n_);
        take_sums(before, add_up(n_), 0, already);
    }

    // Where the second ratio's numbers start behind the first one's: with distances below n in add_up, which add up to
    // less than 2n, the first one's n numbers do not reach them.
    __aicore__ inline int32_t second_sums() const { return round_up<int32_t>(3 * n_, static_cast<int32_t>(kLaneElems)); }

    // Both ratios at once, one behind the other.
    __aicore__ inline void count_groups(const ScannedRows& to, const StepTotals& totals) const {
        AscendC::Add(lengths(), to.starts, to.counts, n_);
        clear_sums();
        for (int32_t which = 0; which < 2; ++which) {
            const int32_t shift = which == 0 ? kShiftC4 : kShiftC128;
            AscendC::ShiftRight(fresh(), to.starts, shift, n_);
            AscendC::ShiftRight(aux(), lengths(), shift, n_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Sub(sums(0)[kZeros + static_cast<uint32_t>(which * second_sums())], aux(), fresh(), n_);
            AscendC::PipeBarrier<PIPE_V>();
        }
        const LocalTensor<int32_t> added = add_up(second_sums() + n_);
        take_sums(to.groups_before[0], added, 0, totals.groups[0]);
        take_sums(to.groups_before[1], added, static_cast<uint32_t>(second_sums()), totals.groups[1]);
    }

    __aicore__ inline void clear_sums() const {
        AscendC::Duplicate(sums(0), int32_t{0}, static_cast<int32_t>(2 * kSums));
        AscendC::PipeBarrier<PIPE_V>();
    }

    // Adds to each of `lanes` numbers of sums(0) those before it, by doubling. Numbers less than 8 apart do not lie at
    // 32-byte boundaries, so that V gathers them.
    __aicore__ inline LocalTensor<int32_t> add_up(int32_t lanes) const {
        uint32_t turn = 0;
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t distance = 1; distance < static_cast<uint32_t>(n_); distance *= 2) {
            const LocalTensor<int32_t> from = sums(turn);
            turn = 1 - turn;
            const LocalTensor<int32_t> to = sums(turn)[kZeros];
            if (distance < static_cast<uint32_t>(kLaneElems)) {
                gather(to, from, 4, (kZeros - distance) * 4, lanes);
                AscendC::Add(to, to, from[kZeros], lanes);
            } else {
                AscendC::Add(to, from[kZeros], from[kZeros - distance], lanes);
            }
            AscendC::PipeBarrier<PIPE_V>();
        }
        return sums(turn);
    }

    // before[i] = already + the sum of the first i numbers from `begin` on.
    __aicore__ inline void take_sums(const LocalTensor<int32_t>& before, const LocalTensor<int32_t>& added,
                                     uint32_t begin, int64_t already) const {
        gather(before, added, 4, (kZeros + begin - 1) * 4, n_ + 1);
        AscendC::Adds(before, before, static_cast<int32_t>(already), n_ + 1);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // The faults of all lanes end up among the first 8.
    __aicore__ inline void fold() const {
        int32_t lanes = static_cast<int32_t>(kLanes);
        while (lanes / 2 >= n_ && lanes > kLaneElems) {
            lanes /= 2;
        }
        const LocalTensor<uint16_t> bits = faults().template ReinterpretCast<uint16_t>();
        while (lanes > kLaneElems) {
            lanes /= 2;
            AscendC::Or(bits, bits, bits[static_cast<uint32_t>(2 * lanes)], 2 * lanes);
            AscendC::PipeBarrier<PIPE_V>();
        }
    }

    __aicore__ inline bool accept(uint32_t n, const ScannedRows& to, StepTotals& totals) const {
        const LocalTensor<int64_t> pairs = faults().template ReinterpretCast<int64_t>();
        int64_t fault = 0;
        for (uint32_t pair = 0; pair < static_cast<uint32_t>(kLaneElems) / 2; ++pair) {
            fault |= pairs.GetValue(pair);
        }
        StepTotals after{to.tokens_before.GetValue(n), {0, 0}};
        for (uint32_t which = 0; counts_groups_ && which < 2; ++which) {
            after.groups[which] = to.groups_before[which].GetValue(n);
        }
        if (fault != 0 || after.tokens > p_->rows.num_tokens || after.groups[0] > p_->capacity_groups[0] ||
            after.groups[1] > p_->capacity_groups[1]) {
            return false;
        }
        totals = after;
        return true;
    }

    const StepParams* p_ = nullptr;
    LocalTensor<int32_t> iota_, scratch_;
    int64_t limit_ = 0;  // of a length; a longer row is one for S, good or bad
    bool counts_groups_ = false;
    bool ragged_ = false;
    bool possible_ = false;
    int32_t n_ = 0;
};

}  // namespace dsv4::kernel
