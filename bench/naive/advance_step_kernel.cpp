#include "kernel_operator.h"
#include "ops/advance_step/advance_step_index.h"
#include "page_slot.h"
#include "scalar_run.h"

namespace dsv4::naive {

using kernel::at;

// A block's share of the rows, one output after another. Accepted lengths and page tables only; bad rows and lengths that
// change in place are not handled.
class AdvanceLoops {
  public:
    __aicore__ inline AdvanceLoops(AscendC::TPipe* pipe, const AdvanceStepAddresses& memory, const AdvanceStepParams& p)
        : p_(p),
          memory_(memory),
          own_(block_share(p.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum())),
          narrow_(pipe),
          wide_(pipe),
          halves_(pipe) {}

    template <typename Value>
    __aicore__ inline void each_row(int32_t field, int32_t is_int64, const Value& value) {
        if (!wants(p_, field)) {
            return;
        }
        narrow_.begin(at(memory_.fields[field]), own_.begin);
        wide_.begin(at(memory_.fields[field]), own_.begin);
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            const VerifiedRow now = row(i);
            if (is_int64 != 0) {
                wide_.push(value(now, advanced_row(now, p_)));
            } else {
                narrow_.push(static_cast<int32_t>(value(now, advanced_row(now, p_))));
            }
        }
        narrow_.end();
        wide_.end();
    }

    __aicore__ inline void slots(int32_t pool) {
        each_row(kAdvancedFullSlots + pool, 0, [&](const VerifiedRow& row, const AdvancedRow& next) {
            return can_draft(next, p_)
                       ? page_slot(p_.pools[pool], memory_.tables[pool], row.request, advanced_length(next))
                       : 0;
        });
    }

    __aicore__ inline void hidden_rows() {
        if (!wants(p_, kAdvancedHidden)) {
            return;
        }
        halves_.begin(at(memory_.fields[kAdvancedHidden]), own_.begin * p_.hidden_row_halves);
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            for (int64_t half = 0; half < p_.hidden_row_halves; ++half) {
                const VerifiedRow now = row(i);
                const AdvancedRow next = advanced_row(now, p_);
                halves_.push(next.accepted != 0
                                 ? element<uint16_t>(at(memory_.hidden), p_.num_tokens * p_.hidden_row_halves,
                                                     sampled_token(now, next) * p_.hidden_row_halves + half)
                                 : uint16_t{0});
            }
        }
        halves_.end();
    }

  private:
    __aicore__ inline VerifiedRow row(int64_t i) const {
        const bool ragged = p_.has_cu_seqlens != 0;
        return VerifiedRow{integer(at(memory_.requests), p_.request_is_int64, p_.num_rows, i),
                           integer(at(memory_.lengths), p_.length_is_int64, p_.num_rows, i),
                           integer(at(memory_.accepted), p_.accepted_is_int64, p_.num_rows, i),
                           0,
                           ragged ? integer(at(memory_.cu_seqlens), 0, p_.num_rows + 1, i) : i * p_.width,
                           ragged ? integer(at(memory_.cu_seqlens), 0, p_.num_rows + 1, i + 1) : (i + 1) * p_.width};
    }

    const AdvanceStepParams& p_;
    const AdvanceStepAddresses& memory_;
    BlockShare own_;
    ScalarRun<int32_t> narrow_;
    ScalarRun<int64_t> wide_;
    ScalarRun<uint16_t> halves_;
};

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void advance_step(GM_ADDR error_lanes, AdvanceStepAddresses memory, AdvanceStepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    using dsv4::AdvancedRow;
    using dsv4::VerifiedRow;
    AscendC::TPipe pipe;
    dsv4::naive::AdvanceLoops rows(&pipe, memory, p);
    rows.each_row(dsv4::kAdvancedLengths, p.length_is_int64, [](const VerifiedRow&, const AdvancedRow& next) {
        return dsv4::advanced_length(next);
    });
    rows.each_row(dsv4::kAdvancedExtend, 0, [](const VerifiedRow&, const AdvancedRow& next) { return next.accepted; });
    rows.each_row(dsv4::kAdvancedTokens, p.token_is_int64, [&](const VerifiedRow& row, const AdvancedRow& next) {
        return next.accepted != 0 ? dsv4::naive::integer(dsv4::kernel::at(memory.tokens), p.token_is_int64, p.num_tokens,
                                                         dsv4::sampled_token(row, next))
                                  : 0;
    });
    rows.each_row(dsv4::kAdvancedPositions, 1, [&](const VerifiedRow&, const AdvancedRow& next) {
        return dsv4::can_draft(next, p) ? dsv4::advanced_length(next) : 0;
    });
    rows.slots(dsv4::kFull);
    rows.slots(dsv4::kSwa);
    rows.each_row(dsv4::kAdvancedSampled, 1, [](const VerifiedRow& row, const AdvancedRow& next) {
        return next.accepted != 0 ? dsv4::sampled_token(row, next) : 0;
    });
    rows.hidden_rows();
}
