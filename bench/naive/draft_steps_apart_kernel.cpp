#include "kernel_operator.h"
#include "ops/draft_steps/draft_steps_index.h"
#include "page_slot.h"
#include "scalar_run.h"

namespace dsv4::naive {

using kernel::at;

// A block's share of the entries, step by step. Page tables without holes; bad requests are not handled; RoPE rows are
// float32, moved as bits.
class ApartLoops {
  public:
    __aicore__ inline ApartLoops(AscendC::TPipe* pipe, const DraftsApartAddresses& memory, const DraftsApartParams& p)
        : p_(p),
          steps_(p.steps),
          memory_(memory),
          own_(block_share(p.steps.num_entries, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum())),
          out_(pipe) {}

    __aicore__ inline void slots(int64_t step) {
        const int32_t shift = steps_.pools[steps_.pool].page_shift;
        out_.begin(at(memory_.steps[step].slots), own_.begin * (1 + p_.pairs));
        for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
            const int64_t first = start(entry);
            const int64_t slot = step < live_steps(first, steps_)
                                     ? page_slot(steps_.pools[steps_.pool], memory_.block_table, entry, first + step)
                                     : steps_.dummy_slot;
            if (p_.pairs != 0) {
                out_.push(static_cast<int32_t>(page_of(slot, shift)));
                out_.push(static_cast<int32_t>(offset_in_page(slot, shift)));
            } else {
                out_.push(static_cast<int32_t>(slot));
            }
        }
        out_.end();
    }

    __aicore__ inline void kv_lens(int64_t step) {
        out_.begin(at(memory_.steps[step].kv_lens), own_.begin);
        for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
            const bool counts = entry < steps_.num_requests && counts_keys(length(entry));
            const int64_t seq_len =
                counts ? integer(at(memory_.seq_lens), p_.keys_are_int64, steps_.num_requests, entry) : 0;
            out_.push(counts ? static_cast<int32_t>(counted_keys(seq_len, step, steps_)) : 0);
        }
        out_.end();
    }

    __aicore__ inline void offsets(int64_t step) {
        out_.begin(at(memory_.steps[step].cu_seqlens), own_.begin);
        for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
            out_.push(static_cast<int32_t>(entry));
        }
        if (own_.begin < own_.end && own_.end == steps_.num_entries) {
            out_.push(static_cast<int32_t>(own_.end));
        }
        out_.end();
    }

    __aicore__ inline void rope_rows(int64_t step, uint64_t table, uint64_t out) {
        out_.begin(at(out), own_.begin * steps_.rope_dim);
        for (int64_t entry = own_.begin; entry < own_.end; ++entry) {
            for (int64_t d = 0; d < steps_.rope_dim; ++d) {
                const int64_t position = draft_position(start(entry), step, steps_);
                out_.push(element<int32_t>(at(table), steps_.max_context_len * steps_.rope_dim,
                                           position * steps_.rope_dim + d));
            }
        }
        out_.end();
    }

  private:
    __aicore__ inline int64_t length(int64_t entry) const {
        return length_behind(integer(at(memory_.last_positions), steps_.length_is_int64, steps_.num_requests, entry),
                             steps_);
    }

    __aicore__ inline int64_t start(int64_t entry) const {
        return entry < steps_.num_requests ? draft_start(length(entry), kRowValid, steps_) : steps_.max_context_len;
    }

    const DraftsApartParams& p_;
    const DraftStepsParams& steps_;
    const DraftsApartAddresses& memory_;
    BlockShare own_;
    ScalarRun<int32_t> out_;
};

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void draft_steps_apart(GM_ADDR error_lanes, DraftsApartAddresses memory,
                                                        DraftsApartParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    dsv4::naive::ApartLoops loops(&pipe, memory, p);
    for (int64_t step = 0; step < p.steps.num_steps; ++step) {
        loops.slots(step);
        loops.kv_lens(step);
        loops.offsets(step);
        for (int32_t base = 0; base < p.num_bases; ++base) {
            loops.rope_rows(step, memory.rope_cos[base], memory.steps[step].cos[base]);
            loops.rope_rows(step, memory.rope_sin[base], memory.steps[step].sin[base]);
        }
    }
}
