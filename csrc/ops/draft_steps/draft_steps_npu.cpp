#include "common/step_launch.h"
#include "ops/draft_steps/draft_steps.h"
#include "torch/check.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_draft_steps.h"

namespace dsv4 {
namespace {

void launch_draft_steps(const DraftStepsParams& p, const DraftStepsInputs& inputs, const DraftStepsOutputs& out) {
    TORCH_CHECK_VALUE(p.rope_dim <= kMaxRopeDim, "draft_steps: rope_cos has rows of ", p.rope_dim,
                      ", expected at most ", kMaxRopeDim, " on a device");
    TORCH_CHECK_VALUE(draft_tile_rows(p) > 0, "draft_steps: topk is ", p.topk, " and num_steps ", p.num_steps,
                      ", expected drafts of one request that fit into a core's local memory");
    if (p.num_entries == 0) {
        return;
    }
    // A reservation has no requests to read.
    const at::Tensor requests = inputs.req_pool_indices.value_or(inputs.seq_lens);
    const at::Tensor source = drafts_from_table(p) ? *inputs.table : *inputs.reservation;
    const std::array memory{inputs.seq_lens, requests,      source,      inputs.rope_cos, inputs.rope_sin,
                            out.slots,       out.positions, out.kv_lens, out.cos,         out.sin};
    const int64_t most_blocks = blocks_for(draft_bytes(p), kGrainBytes, npu::vector_cores(out.slots));
    npu::launch_on("draft_steps", memory, even_blocks(draft_rows(p), most_blocks),
                   [p = p, errors = npu::error_lanes(out.slots)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(draft_steps)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_draft_steps<&launch_draft_steps>(m); }

}  // namespace dsv4
