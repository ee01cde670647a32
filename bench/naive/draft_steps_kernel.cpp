#include "kernel_operator.h"
#include "ops/draft_steps/draft_steps_index.h"
#include "scalar_run.h"

namespace dsv4::naive {

// A block's share of the entries, step by step. Bad requests are not handled; RoPE rows are float32, moved as bits.
class DraftLoops {
  public:
    __aicore__ inline DraftLoops(AscendC::TPipe* pipe, GM_ADDR lengths, const DraftStepsParams& p)
        : p_(p),
          lengths_(lengths),
          own_(block_share(p.num_entries, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum())),
          narrow_(pipe),
          wide_(pipe) {}

    __aicore__ inline void slots(GM_ADDR requests, GM_ADDR source, GM_ADDR out) {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            narrow_.begin(out, draft_output(step, own_.begin, p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                narrow_.push(step < live_steps(start(entry), p_) ? slot(requests, source, entry, step) : 0);
            }
            narrow_.end();
        }
    }

    __aicore__ inline void positions(GM_ADDR out) {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            wide_.begin(out, draft_output(step, own_.begin, p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                wide_.push(draft_position(start(entry), step, p_));
            }
            wide_.end();
        }
    }

    __aicore__ inline void kv_lens(GM_ADDR out) {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            narrow_.begin(out, draft_output(step, own_.begin, p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                narrow_.push(static_cast<int32_t>(draft_kv_len(draft_position(start(entry), step, p_))));
            }
            narrow_.end();
        }
    }

    __aicore__ inline void rope_rows(GM_ADDR table, GM_ADDR out) {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            narrow_.begin(out, draft_rope_elems(draft_output(step, own_.begin, p_), p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                for (int64_t d = 0; d < p_.rope_dim; ++d) {
                    const int64_t position = draft_position(start(entry), step, p_);
                    narrow_.push(element<int32_t>(table, draft_rope_elems(p_.max_context_len, p_),
                                                  draft_rope_elems(position, p_) + d));
                }
            }
            narrow_.end();
        }
    }

  private:
    __aicore__ inline int64_t start(int64_t entry) const {
        if (entry >= owned_entries(p_)) {
            return p_.max_context_len;
        }
        return draft_start(integer(lengths_, p_.length_is_int64, p_.num_requests, draft_request(entry, p_)), kRowValid,
                           p_);
    }

    __aicore__ inline int32_t slot(GM_ADDR requests, GM_ADDR source, int64_t entry, int64_t step) const {
        if (!drafts_from_table(p_)) {
            return draft_slot(
                element<int32_t>(source, reserved_slots(owned_entries(p_), p_), reserved_slots(entry, p_) + step));
        }
        const int64_t request = integer(requests, p_.request_is_int64, p_.num_requests, draft_request(entry, p_));
        return element<int32_t>(source, p_.max_requests * p_.table_row_elems,
                                draft_table_entry(request, start(entry), p_) + step);
    }

    const DraftStepsParams& p_;
    GM_ADDR lengths_;
    BlockShare own_;
    ScalarRun<int32_t> narrow_;
    ScalarRun<int64_t> wide_;
};

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void draft_steps(GM_ADDR seq_lens, GM_ADDR requests, GM_ADDR source, GM_ADDR rope_cos,
                                                  GM_ADDR rope_sin, GM_ADDR slots, GM_ADDR positions, GM_ADDR kv_lens,
                                                  GM_ADDR cos, GM_ADDR sin, GM_ADDR error_lanes, DraftStepsParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    dsv4::naive::DraftLoops steps(&pipe, seq_lens, p);
    steps.slots(requests, source, slots);
    steps.positions(positions);
    steps.kv_lens(kv_lens);
    steps.rope_rows(rope_cos, cos);
    steps.rope_rows(rope_sin, sin);
}
