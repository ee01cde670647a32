#include "kernel_operator.h"
#include "ops/draft_steps/draft_steps_index.h"
#include "page_slots.h"

namespace dsv4::naive {

// A block's share of the entries, step by step. Bad requests are not handled; RoPE rows are float32, moved as bits.
class DraftLoops {
  public:
    __aicore__ inline DraftLoops(AscendC::TPipe* pipe, const DraftStepsAddresses& memory, const DraftStepsParams& p)
        : p_(p),
          memory_(memory),
          table_(p.pools, memory.tables),
          own_(block_share(p.num_entries, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum())),
          narrow_(pipe),
          wide_(pipe) {}

    __aicore__ inline void slots() {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            narrow_.begin(kernel::at(memory_.slots), draft_output(step, own_.begin, p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                narrow_.push(step < live_steps(start(entry), p_) ? slot(entry, step) : p_.dummy_slot);
            }
            narrow_.end();
        }
    }

    __aicore__ inline void positions() {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            wide_.begin(kernel::at(memory_.positions), draft_output(step, own_.begin, p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                wide_.push(draft_position(start(entry), step, p_));
            }
            wide_.end();
        }
    }

    __aicore__ inline void kv_lens() {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            narrow_.begin(kernel::at(memory_.kv_lens), draft_output(step, own_.begin, p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                narrow_.push(static_cast<int32_t>(draft_kv_len(draft_position(start(entry), step, p_))));
            }
            narrow_.end();
        }
    }

    __aicore__ inline void rope_rows(uint64_t table, uint64_t out) {
        for (int64_t step = 0; step < p_.num_steps; ++step) {
            narrow_.begin(kernel::at(out), draft_rope_elems(draft_output(step, own_.begin, p_), p_));
            for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
                for (int64_t d = 0; d < p_.rope_dim; ++d) {
                    const int64_t position = draft_position(start(entry), step, p_);
                    narrow_.push(element<int32_t>(kernel::at(table), draft_rope_elems(p_.max_context_len, p_),
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
        const int64_t length =
            integer(kernel::at(memory_.lengths), p_.length_is_int64, p_.num_requests, draft_request(entry, p_));
        return draft_start(length, kRowValid, p_);
    }

    __aicore__ inline int32_t slot(int64_t entry, int64_t step) const {
        const int64_t index = draft_request(entry, p_);
        if (!drafts_from_table(p_)) {
            const int32_t reserved =
                element<int32_t>(kernel::at(memory_.reservation), reserved_slots(owned_entries(p_), p_),
                                 reserved_slots(entry, p_) + step);
            return reserved > 0 ? reserved : p_.dummy_slot;
        }
        const int64_t request =
            p_.has_requests != 0
                ? integer(kernel::at(memory_.requests), p_.request_is_int64, p_.num_requests, index)
                : index;
        return table_.slot(p_.pool, request, start(entry) + step, p_.dummy_slot);
    }

    const DraftStepsParams& p_;
    const DraftStepsAddresses& memory_;
    PageSlots table_;
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
