#include "kernel_operator.h"
#include "ops/advance_step/advance_step_index.h"
#include "page_slots.h"

namespace dsv4::naive {

// A block's share of the rows, one output after another. Bad rows, and lengths that change in place, are not handled.
class AdvanceLoops {
  public:
    __aicore__ inline AdvanceLoops(AscendC::TPipe* pipe, const AdvanceStepAddresses& memory, const AdvanceStepParams& p)
        : p_(p),
          memory_(memory),
          table_(p.pools, memory.tables),
          own_(block_share(p.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum())),
          narrow_(pipe),
          wide_(pipe),
          halves_(pipe) {}

    // value(index, row as it was, what becomes of it)
    template <typename Value>
    __aicore__ inline void each_row(int32_t field, int32_t is_int64, const Value& value) {
        if (!wants(p_, field)) {
            return;
        }
        narrow_.begin(kernel::at(memory_.fields[field]), own_.begin);
        wide_.begin(kernel::at(memory_.fields[field]), own_.begin);
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            const VerifiedRow now = row(i);
            const int64_t result = value(i, now, advanced_row(now, p_));
            if (is_int64 != 0) {
                wide_.push(result);
            } else {
                narrow_.push(static_cast<int32_t>(result));
            }
        }
        narrow_.end();
        wide_.end();
    }

    __aicore__ inline int64_t slot(int32_t pool, const VerifiedRow& row, const AdvancedRow& next) const {
        return can_draft(next, p_) ? table_.slot(pool, row.request, advanced_length(next), p_.dummy_slots[pool])
                                   : p_.dummy_slots[pool];
    }

    __aicore__ inline int64_t newest_token(int64_t i, const VerifiedRow& row, const AdvancedRow& next) const {
        if (is_padding(row) || (row.count == 0 && p_.has_backup == 0)) {
            return 0;
        }
        if (row.count == 0) {
            return integer(kernel::at(memory_.backup), p_.token_is_int64, p_.num_rows, i);
        }
        return p_.num_samples != 0 ? sample(i, row.count - 1)
                                   : integer(kernel::at(memory_.tokens), p_.token_is_int64, p_.num_tokens,
                                             sampled_token(row, next));
    }

    __aicore__ inline void hidden_rows() {
        if (!wants(p_, kAdvancedHidden)) {
            return;
        }
        halves_.begin(kernel::at(memory_.fields[kAdvancedHidden]), own_.begin * p_.hidden_row_halves);
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            const VerifiedRow now = row(i);
            const AdvancedRow next = advanced_row(now, p_);
            for (int64_t half = 0; half < p_.hidden_row_halves; ++half) {
                halves_.push(next.accepted != 0
                                 ? element<uint16_t>(kernel::at(memory_.hidden), p_.num_tokens * p_.hidden_row_halves,
                                                     sampled_token(now, next) * p_.hidden_row_halves + half)
                                 : uint16_t{0});
            }
        }
        halves_.end();
    }

  private:
    __aicore__ inline int64_t sample(int64_t i, int64_t index) const {
        return integer(kernel::at(memory_.tokens), p_.token_is_int64, p_.num_rows * p_.num_samples,
                       i * p_.num_samples + index);
    }

    __aicore__ inline VerifiedRow row(int64_t i) const {
        const bool ragged = p_.has_cu_seqlens != 0;
        GM_ADDR offsets = kernel::at(memory_.cu_seqlens);
        return VerifiedRow{
            p_.has_requests != 0 ? integer(kernel::at(memory_.requests), p_.request_is_int64, p_.num_rows, i) : i,
            integer(kernel::at(memory_.lengths), p_.length_is_int64, p_.num_rows, i),
            p_.num_samples != 0 ? valid_samples(p_.num_samples, [&](int64_t index) { return sample(i, index); })
                                : integer(kernel::at(memory_.accepted), p_.accepted_is_int64, p_.num_rows, i),
            p_.has_drafts != 0 ? integer(kernel::at(memory_.drafts), p_.drafts_is_int64, p_.num_rows, i) : 0,
            ragged ? integer(offsets, 0, p_.num_rows + 1, i) : i * p_.width,
            ragged ? integer(offsets, 0, p_.num_rows + 1, i + 1) : (i + 1) * p_.width};
    }

    const AdvanceStepParams& p_;
    const AdvanceStepAddresses& memory_;
    PageSlots table_;
    BlockShare own_;
    ScalarRun<int32_t> narrow_;
    ScalarRun<int64_t> wide_;
    ScalarRun<uint16_t> halves_;
};

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void advance_step(GM_ADDR error_lanes, AdvanceStepAddresses memory,
                                                   AdvanceStepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    using dsv4::AdvancedRow;
    using dsv4::VerifiedRow;
    AscendC::TPipe pipe;
    dsv4::naive::AdvanceLoops rows(&pipe, memory, p);
    rows.each_row(dsv4::kAdvancedLengths, p.length_is_int64, [](int64_t, const VerifiedRow&, const AdvancedRow& next) {
        return dsv4::advanced_length(next);
    });
    rows.each_row(dsv4::kAdvancedExtend, 0,
                  [](int64_t, const VerifiedRow&, const AdvancedRow& next) { return next.accepted; });
    rows.each_row(dsv4::kAdvancedTokens, p.token_is_int64,
                  [&](int64_t i, const VerifiedRow& row, const AdvancedRow& next) {
                      return rows.newest_token(i, row, next);
                  });
    rows.each_row(dsv4::kAdvancedPositions, 1, [&](int64_t, const VerifiedRow&, const AdvancedRow& next) {
        return dsv4::can_draft(next, p) ? dsv4::advanced_length(next) : 0;
    });
    for (const int32_t pool : {dsv4::kFull, dsv4::kSwa}) {
        rows.each_row(
            dsv4::kAdvancedFullSlots + pool, 0,
            [&](int64_t, const VerifiedRow& row, const AdvancedRow& next) { return rows.slot(pool, row, next); });
    }
    rows.each_row(dsv4::kAdvancedSampled, 1, [](int64_t, const VerifiedRow& row, const AdvancedRow& next) {
        return next.accepted != 0 ? dsv4::sampled_token(row, next) : 0;
    });
    rows.each_row(dsv4::kAdvancedCounts, 0, [](int64_t, const VerifiedRow& row, const AdvancedRow&) {
        return dsv4::is_padding(row) ? 0 : row.count;
    });
    rows.each_row(dsv4::kAdvancedRejected, 0,
                  [](int64_t, const VerifiedRow&, const AdvancedRow& next) { return next.rejected; });
    rows.hidden_rows();
}
