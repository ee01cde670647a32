#include "kernel_operator.h"
#include "ops/advance_step/advance_step_index.h"
#include "scalar_run.h"

namespace dsv4::naive {

// A block's share of the rows, one output after another. Bad rows and lengths that change in place are not handled.
class AdvanceLoops {
  public:
    __aicore__ inline AdvanceLoops(AscendC::TPipe* pipe, GM_ADDR requests, GM_ADDR lengths, GM_ADDR accepted,
                                   GM_ADDR cu_seqlens, const AdvanceStepParams& p)
        : p_(p),
          requests_(requests),
          lengths_(lengths),
          accepted_(accepted),
          cu_seqlens_(cu_seqlens),
          own_(block_share(p.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum())),
          narrow_(pipe),
          wide_(pipe),
          halves_(pipe) {}

    template <typename Value>
    __aicore__ inline void each_row(GM_ADDR out, int32_t is_int64, const Value& value) {
        narrow_.begin(out, own_.begin);
        wide_.begin(out, own_.begin);
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            if (is_int64 != 0) {
                wide_.push(value(row(i)));
            } else {
                narrow_.push(static_cast<int32_t>(value(row(i))));
            }
        }
        narrow_.end();
        wide_.end();
    }

    __aicore__ inline void slots(GM_ADDR table, int64_t row_elems, GM_ADDR out) {
        if (pool_exists(row_elems)) {
            each_row(out, 0, [&](const VerifiedRow& row) {
                return can_draft(row, p_) ? element<int32_t>(table, p_.max_requests * row_elems,
                                                             draft_slot_offset_elems(row, row_elems))
                                          : 0;
            });
        }
    }

    __aicore__ inline void hidden_rows(GM_ADDR hidden, GM_ADDR out) {
        halves_.begin(out, own_.begin * p_.hidden_row_halves);
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            for (int64_t half = 0; half < p_.hidden_row_halves; ++half) {
                const VerifiedRow now = row(i);
                halves_.push(has_accepted(now)
                                 ? element<uint16_t>(hidden, p_.num_tokens * p_.hidden_row_halves,
                                                     sampled_token(now) * p_.hidden_row_halves + half)
                                 : uint16_t{0});
            }
        }
        halves_.end();
    }

  private:
    __aicore__ inline VerifiedRow row(int64_t i) const {
        const bool ragged = p_.has_cu_seqlens != 0;
        return VerifiedRow{integer(requests_, p_.request_is_int64, p_.num_rows, i),
                           integer(lengths_, p_.length_is_int64, p_.num_rows, i),
                           integer(accepted_, p_.accepted_is_int64, p_.num_rows, i),
                           ragged ? integer(cu_seqlens_, 0, p_.num_rows + 1, i) : i * p_.width,
                           ragged ? integer(cu_seqlens_, 0, p_.num_rows + 1, i + 1) : (i + 1) * p_.width};
    }

    const AdvanceStepParams& p_;
    GM_ADDR requests_;
    GM_ADDR lengths_;
    GM_ADDR accepted_;
    GM_ADDR cu_seqlens_;
    BlockShare own_;
    ScalarRun<int32_t> narrow_;
    ScalarRun<int64_t> wide_;
    ScalarRun<uint16_t> halves_;
};

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void advance_step(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR requests,
                                                   GM_ADDR lengths, GM_ADDR accepted, GM_ADDR tokens,
                                                   GM_ADDR cu_seqlens, GM_ADDR hidden, GM_ADDR next_lengths,
                                                   GM_ADDR extend, GM_ADDR next_tokens, GM_ADDR positions,
                                                   GM_ADDR full_slots, GM_ADDR swa_slots, GM_ADDR sampled,
                                                   GM_ADDR next_hidden, GM_ADDR error_lanes, AdvanceStepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    using dsv4::VerifiedRow;
    AscendC::TPipe pipe;
    dsv4::naive::AdvanceLoops rows(&pipe, requests, lengths, accepted, cu_seqlens, p);
    rows.each_row(next_lengths, p.length_is_int64, [](const VerifiedRow& row) { return dsv4::advanced_length(row); });
    rows.each_row(extend, 0, [](const VerifiedRow& row) { return dsv4::extend_width(row); });
    rows.each_row(next_tokens, p.token_is_int64, [&](const VerifiedRow& row) {
        return dsv4::has_accepted(row)
                   ? dsv4::naive::integer(tokens, p.token_is_int64, p.num_tokens, dsv4::sampled_token(row))
                   : 0;
    });
    rows.each_row(positions, 1, [&](const VerifiedRow& row) {
        return dsv4::can_draft(row, p) ? dsv4::advanced_length(row) : 0;
    });
    rows.slots(full_table, p.full_row_elems, full_slots);
    rows.slots(swa_table, p.swa_row_elems, swa_slots);
    rows.each_row(sampled, 1, [](const VerifiedRow& row) {
        return dsv4::has_accepted(row) ? dsv4::sampled_token(row) : 0;
    });
    rows.hidden_rows(hidden, next_hidden);
}
