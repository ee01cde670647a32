#include <torch/library.h>

#include "common/step_launch.h"
#include "ops/draft_steps/draft_steps.h"
#include "torch/check.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_draft_steps.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "draft_steps";

void run(const DraftStepsInputs& inputs, const DraftStepsOutputs& out) {
    const DraftStepsParams p = check_draft_steps(inputs, out);
    TORCH_CHECK_VALUE(p.rope_dim <= kMaxRopeDim, kOp, ": rope_cos has rows of ", p.rope_dim, ", expected at most ",
                      kMaxRopeDim, " on a device");
    TORCH_CHECK_VALUE(draft_tile_rows(p) > 0, kOp, ": topk is ", p.topk, " and num_steps ", p.num_steps,
                      ", expected drafts of one request that fit into a core's local memory");
    if (p.num_entries == 0) {
        return;
    }
    // A reservation has no requests to read.
    const at::Tensor requests = inputs.req_pool_indices.value_or(inputs.seq_lens);
    const at::Tensor source = drafts_from_table(p) ? *inputs.table : *inputs.reservation;
    const std::array<at::Tensor, 10> memory{inputs.seq_lens, requests,  source,        inputs.rope_cos,
                                            inputs.rope_sin, out.slots, out.positions, out.kv_lens,
                                            out.cos,         out.sin};
    npu::launch(
        kOp,
        {memory[0], memory[1], memory[2], memory[3], memory[4], memory[5], memory[6], memory[7], memory[8], memory[9]},
        blocks_for(draft_bytes(p), kGrainBytes, npu::vector_cores(out.slots)),
        [p = p, at = npu::addresses(memory), errors = npu::error_lanes(out.slots)](uint32_t blocks,
                                                                                   void* stream) mutable {
            return ACLRT_LAUNCH_KERNEL(draft_steps)(blocks, stream, at[0], at[1], at[2], at[3], at[4], at[5], at[6],
                                                    at[7], at[8], at[9], errors, &p);
        });
}

void draft_steps_out_npu(const at::Tensor& seq_lens, const std::optional<at::Tensor>& reservation,
                         const std::optional<at::Tensor>& req_pool_indices, const std::optional<at::Tensor>& table,
                         const at::Tensor& rope_cos, const at::Tensor& rope_sin, int64_t topk, int64_t num_steps,
                         int64_t max_context_len, const at::Tensor& slots, const at::Tensor& positions,
                         const at::Tensor& kv_lens, const at::Tensor& cos, const at::Tensor& sin) {
    run({seq_lens, reservation, req_pool_indices, table, rope_cos, rope_sin, topk, num_steps, max_context_len},
        {slots, positions, kv_lens, cos, sin});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> draft_steps_npu(
    const at::Tensor& seq_lens, const std::optional<at::Tensor>& reservation,
    const std::optional<at::Tensor>& req_pool_indices, const std::optional<at::Tensor>& table,
    const at::Tensor& rope_cos, const at::Tensor& rope_sin, int64_t topk, int64_t num_steps, int64_t num_entries,
    int64_t max_context_len) {
    const DraftStepsInputs inputs{seq_lens, reservation, req_pool_indices, table,          rope_cos,
                                  rope_sin, topk,        num_steps,        max_context_len};
    DraftStepsOutputs out = empty_draft_steps(inputs, num_entries);
    run(inputs, out);
    return {std::move(out.slots), std::move(out.positions), std::move(out.kv_lens), std::move(out.cos),
            std::move(out.sin)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    m.impl("draft_steps", &draft_steps_npu);
    m.impl("draft_steps.out", &draft_steps_out_npu);
}

}  // namespace dsv4
