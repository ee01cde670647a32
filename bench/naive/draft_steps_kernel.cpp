#include "kernel_operator.h"
#include "ops/draft_steps/draft_steps_index.h"
#include "page_slot.h"
#include "scalar_run.h"

namespace dsv4::naive {

using kernel::at;

// A block's share of the entries, step by step. Page tables or a reservation without holes; bad requests are not
// handled; RoPE rows are float32, moved as bits.
class DraftLoops {
  public:
    __aicore__ inline DraftLoops(AscendC::TPipe* pipe, const DraftStepsAddresses& memory, const DraftStepsParams& p)
        : p_(p),
          memory_(memory),
          own_(block_share(p.num_entries, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum())),
          narrow_(pipe),
          wide_(pipe) {}

    __aicore__ inline void slots() {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            narrow_.begin(at(memory_.slots), draft_output(step, own_.begin, p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                narrow_.push(step < live_steps(start(entry), p_) ? slot(entry, step) : 0);
            }
            narrow_.end();
        }
    }

    __aicore__ inline void positions() {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            wide_.begin(at(memory_.positions), draft_output(step, own_.begin, p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                wide_.push(draft_position(start(entry), step, p_));
            }
            wide_.end();
        }
    }

    __aicore__ inline void kv_lens() {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            narrow_.begin(at(memory_.kv_lens), draft_output(step, own_.begin, p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                narrow_.push(static_cast<int32_t>(draft_kv_len(draft_position(start(entry), step, p_))));
            }
            narrow_.end();
        }
    }

    __aicore__ inline void rope_rows(uint64_t table, uint64_t out) {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            narrow_.begin(at(out), draft_output(step, own_.begin, p_) * p_.rope_dim);
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                for (int64_t d = 0; d < p_.rope_dim; ++d) {
                    const int64_t position = draft_position(start(entry), step, p_);
                    narrow_.push(
                        element<int32_t>(at(table), p_.max_context_len * p_.rope_dim, position * p_.rope_dim + d));
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
        return draft_start(integer(at(memory_.lengths), p_.length_is_int64, p_.num_requests, draft_request(entry, p_)), kRowValid,
                           p_);
    }

    __aicore__ inline int32_t slot(int64_t entry, int64_t step) const {
        if (!drafts_from_table(p_)) {
            return element<int32_t>(at(memory_.reservation), reserved_slots(owned_entries(p_), p_),
                                    reserved_slots(entry, p_) + step);
        }
        const int64_t request = integer(at(memory_.requests), p_.request_is_int64, p_.num_requests, draft_request(entry, p_));
        return page_slot(p_.pools[p_.pool], memory_.tables[p_.pool], request, start(entry) + step);
    }

    const DraftStepsParams& p_;
    const DraftStepsAddresses& memory_;
    BlockShare own_;
    ScalarRun<int32_t> narrow_;
    ScalarRun<int64_t> wide_;
};

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void draft_steps(GM_ADDR error_lanes, DraftStepsAddresses memory, DraftStepsParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    dsv4::naive::DraftLoops steps(&pipe, memory, p);
    steps.slots();
    steps.positions();
    steps.kv_lens();
    steps.rope_rows(memory.rope_cos, memory.cos);
    steps.rope_rows(memory.rope_sin, memory.sin);
}
