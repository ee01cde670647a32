// Rows as a verify left them, and what becomes of them: V finds it for a chunk of rows at a time. Where anything is
// wrong S looks for the bad rows, which become padding.
#pragma once

#include "device/errors.h"
#include "device/iota.h"
#include "device/lane_scan.h"
#include "ops/advance_step/token_tile.h"

namespace dsv4::kernel {

// What advanced_row() says of a chunk's rows, and more: an int32 each, 0 for padding.
struct AdvancedLanes {
    LocalTensor<int32_t> requests;  // of rows with tokens
    LocalTensor<int32_t> live;      // 1; 0 for padding
    LocalTensor<int32_t> counts;
    LocalTensor<int32_t> accepted;
    LocalTensor<int32_t> rejected;
    LocalTensor<int32_t> lengths;    // advanced_length()
    LocalTensor<int32_t> positions;  // the same where can_draft()
    LocalTensor<int32_t> sampled;    // sampled_token()
};

class VerifiedRows {
  public:
    // iota: to be filled with 0, 1, .. for two entries a row.
    __aicore__ inline VerifiedRows(AscendC::TPipe* pipe, const AdvanceStepAddresses& from, const AdvanceStepParams& p,
                                   const TokenTile& tokens, const LocalTensor<int32_t>& iota)
        : p_(p), tokens_(tokens), iota_(iota), most_tokens_(min_of<int64_t>(p.num_tokens, INT32_MAX)) {
        constexpr uint32_t input_elems = static_cast<uint32_t>(kAdvanceChunkRows) * 2;
        // cu_seqlens have one entry more than there are rows.
        constexpr uint32_t inputs = 5 * input_elems + static_cast<uint32_t>(kLaneElems);
        pipe->InitBuffer(
            buffer_, (inputs + static_cast<uint32_t>(lane_scan_elems(kAdvanceChunkRows, kAreas))) * sizeof(int32_t));
        const LocalTensor<int32_t> values = buffer_.Get<int32_t>();
        requests_.init(at(from.requests), p.num_rows, p.request_is_int64, values);
        lengths_.init(at(from.lengths), p.num_rows, p.length_is_int64, values[input_elems]);
        counts_.init(at(from.accepted), p.num_rows, p.num_samples != 0 ? 0 : p.accepted_is_int64,
                     values[2 * input_elems]);
        drafts_.init(at(from.drafts), p.num_rows, p.drafts_is_int64, values[3 * input_elems]);
        offsets_.init(at(from.cu_seqlens), p.num_rows + 1, 0, values[4 * input_elems]);
        lanes_.init(iota, values[inputs]);
        next_ = AdvancedLanes{lanes_.area(0), lanes_.area(1), lanes_.area(2), lanes_.area(3),
                              lanes_.area(4), lanes_.area(5), lanes_.area(6), lanes_.area(7)};
        seq_lens_ = lanes_.area(8);
        firsts_ = lanes_.area(9);
        widths_ = lanes_.area(10);
        guesses_ = lanes_.area(11);
        aux_ = lanes_.area(12);
        fresh_ = lanes_.area(13);
    }

    // Makes rows [first, first + rows) known, so that S may read what is known of them; errors: where to report a bad
    // one, or null. What was known before may be in use by S, V and MTE3.
    __aicore__ inline void load_chunk(int64_t first, uint32_t rows, ErrorLane* errors) {
        order<AscendC::HardEvent::S_V>();
        order<AscendC::HardEvent::V_MTE2>();
        order<AscendC::HardEvent::MTE3_V>();
        load_inputs(first, rows);
        if (end_ == 0) {
            fill_iota(iota_, 2 * static_cast<uint32_t>(kAdvanceChunkRows));
            tokens_.prepare();
        }
        order<AscendC::HardEvent::MTE2_S>();
        if (p_.num_samples != 0) {
            tokens_.count_samples(first, rows, [&](uint32_t row, int64_t count) { counts_.set(row, count); });
            order<AscendC::HardEvent::S_V>();
        }
        first_ = first;
        end_ = first + rows;
        if (!advance(rows)) {
            clear_bad(errors);
            order<AscendC::HardEvent::S_V>();
            advance(rows);
        }
    }

    __aicore__ inline bool knows(int64_t first, int64_t rows) const { return first >= first_ && first + rows <= end_; }

    // Of the rows that are known.
    __aicore__ inline const AdvancedLanes& next() const { return next_; }

    // Of a row that is known.
    __aicore__ inline uint32_t place(int64_t index) const { return static_cast<uint32_t>(index - first_); }

  private:
    static constexpr int64_t kAreas = 14;

    __aicore__ inline void load_inputs(int64_t first, uint32_t rows) {
        lengths_.load_chunk(first, rows);
        if (p_.num_samples == 0) {
            counts_.load_chunk(first, rows);
        }
        if (p_.has_requests != 0) {
            requests_.load_chunk(first, rows);
        }
        if (p_.has_drafts != 0) {
            drafts_.load_chunk(first, rows);
        }
        if (p_.has_cu_seqlens != 0) {
            offsets_.load_chunk(first, rows + 1);
        }
        tokens_.load_chunk(first, rows);
    }

    // advanced_row() of all rows; whether advance_fault() finds nothing. No operation here overflows, whatever the
    // values are.
    __aicore__ inline bool advance(uint32_t rows) {
        const int32_t n = static_cast<int32_t>(rows);
        lanes_.begin(rows);
        lanes_.take(seq_lens_, lengths_, 0, p_.max_context_len);
        AscendC::Mins(next_.live, seq_lens_, int32_t{1}, n);
        // Which waits for V before it looks at them.
        lanes_.take_live(next_.counts, counts_, next_.live, most_tokens_);
        const LocalTensor<int32_t>& with_tokens = find_tokens(n);
        take_requests(n, with_tokens);
        reject(n);
        AscendC::Sub(next_.accepted, widths_, next_.rejected, n);
        AscendC::PipeBarrier<PIPE_V>();
        if (p_.has_drafts != 0) {
            AscendC::Maxs(next_.accepted, next_.accepted, int32_t{0}, n);
            AscendC::PipeBarrier<PIPE_V>();
        }
        extend(n);
        return lanes_.all_good();
    }

    // has_tokens(), which it returns, and where the tokens lie.
    __aicore__ inline const LocalTensor<int32_t>& find_tokens(int32_t n) {
        const bool counted = p_.lengths_are_final == 0 && p_.has_drafts == 0;
        const LocalTensor<int32_t>& with_tokens = counted ? guesses_ : next_.live;
        if (counted) {
            AscendC::Mins(with_tokens, next_.counts, int32_t{1}, n);
            AscendC::PipeBarrier<PIPE_V>();
        }
        if (p_.has_cu_seqlens == 0) {
            AscendC::Adds(firsts_, iota_, static_cast<int32_t>(first_), n);
            AscendC::Muls(widths_, with_tokens, static_cast<int32_t>(p_.width), n);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Muls(firsts_, firsts_, static_cast<int32_t>(p_.width), n);
        } else {
            lanes_.take_live(firsts_, offsets_, with_tokens, most_tokens_);
            lanes_.take_live(aux_, offsets_, with_tokens, most_tokens_, 1);
            AscendC::Sub(fresh_, aux_, firsts_, n);
            AscendC::PipeBarrier<PIPE_V>();
            lanes_.take_within(widths_, fresh_, most_tokens_);
        }
        return with_tokens;
    }

    // Whatever the index of a row without tokens is.
    __aicore__ inline void take_requests(int32_t n, const LocalTensor<int32_t>& with_tokens) {
        const int64_t last = p_.max_requests - 1;
        if (p_.has_requests != 0) {
            lanes_.take_live(next_.requests, requests_, with_tokens, last);
            return;
        }
        AscendC::Adds(fresh_, iota_, static_cast<int32_t>(first_), n);
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_live_within(next_.requests, fresh_, with_tokens, last);
    }

    // Inputs that are not accepted, where most_accepted() allows the count.
    __aicore__ inline void reject(int32_t n) {
        AscendC::Sub(fresh_, widths_, next_.counts, n);
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_within(next_.rejected, fresh_, most_tokens_);
        if (p_.has_drafts == 0) {
            return;
        }
        lanes_.take_live(guesses_, drafts_, next_.live, most_tokens_ - 1);
        AscendC::Mins(aux_, guesses_, int32_t{1}, n);  // 1 where there are any
        AscendC::Sub(fresh_, widths_, guesses_, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(fresh_, fresh_, aux_, n);
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_within(next_.rejected, fresh_, most_tokens_);
        AscendC::Sub(fresh_, guesses_, next_.counts, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(fresh_, fresh_, int32_t{1}, n);
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_within(next_.rejected, fresh_, most_tokens_);
        AscendC::Mul(next_.rejected, next_.rejected, aux_, n);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // The lengths, their positions where can_draft(), and the last inputs that are accepted.
    __aicore__ inline void extend(int32_t n) {
        const bool final = p_.lengths_are_final != 0;
        const LocalTensor<int32_t>& committed = final ? aux_ : seq_lens_;
        if (final) {
            AscendC::Sub(fresh_, seq_lens_, widths_, n);
            AscendC::PipeBarrier<PIPE_V>();
            lanes_.take_within(committed, fresh_, p_.max_context_len);
        }
        const int32_t longest = static_cast<int32_t>(p_.max_context_len);
        AscendC::Add(next_.sampled, firsts_, next_.accepted, n);
        AscendC::Muls(fresh_, committed, int32_t{-1}, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(fresh_, fresh_, longest, n);
        AscendC::Adds(next_.sampled, next_.sampled, int32_t{-1}, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(fresh_, fresh_, next_.accepted, n);
        AscendC::PipeBarrier<PIPE_V>();
        const LocalTensor<int32_t>& left = firsts_;  // tokens that fit in behind
        lanes_.take_within(left, fresh_, longest);
        AscendC::Muls(next_.lengths, left, int32_t{-1}, n);
        AscendC::Mins(fresh_, next_.accepted, int32_t{1}, n);
        AscendC::Mins(aux_, left, int32_t{1}, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(next_.lengths, next_.lengths, longest, n);
        AscendC::Mul(next_.sampled, next_.sampled, fresh_, n);
        AscendC::Mul(aux_, aux_, fresh_, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(next_.positions, next_.lengths, aux_, n);
    }

    // Makes padding of bad rows.
    __aicore__ inline void clear_bad(ErrorLane* errors) const {
        for (int64_t index = first_; index < end_; ++index) {
            const uint32_t i = place(index);
            const bool ragged = p_.has_cu_seqlens != 0;
            const VerifiedRow row{p_.has_requests != 0 ? requests_.get(i) : index,
                                  lengths_.get(i),
                                  counts_.get(i),
                                  p_.has_drafts != 0 ? drafts_.get(i) : 0,
                                  ragged ? offsets_.get(i) : index * p_.width,
                                  ragged ? offsets_.get(i + 1) : (index + 1) * p_.width};
            const int32_t fault = advance_fault(row, p_);
            if (fault == kAdvanceValid) {
                continue;
            }
            lengths_.set(i, 0);
            if (errors != nullptr) {
                errors->report(fault, index, advance_faulty_value(fault, row));
            }
        }
    }

    const AdvanceStepParams& p_;
    const TokenTile& tokens_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<int32_t> iota_;
    LaneScan<kAdvanceChunkRows, kAreas> lanes_;
    RowValues requests_, lengths_, counts_, drafts_, offsets_;
    AdvancedLanes next_;
    LocalTensor<int32_t> seq_lens_, guesses_;  // lengths as given, and drafts
    LocalTensor<int32_t> firsts_, widths_;     // of the tokens of rows with any; other widths are 0
    LocalTensor<int32_t> aux_, fresh_;
    int64_t most_tokens_;
    int64_t first_ = 0;
    int64_t end_ = 0;
};

}  // namespace dsv4::kernel
