#include "ops/advance_step/advance_step.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_advance_step.h"

namespace dsv4 {
namespace {

void launch_advance_step(const AdvanceStepParams& p, const AdvanceInputs& inputs, const AdvanceOutputs& out) {
    if (p.num_rows == 0) {
        return;
    }
    // What is not given is not read or written.
    const std::array memory{inputs.full_table,
                            inputs.swa_table,
                            inputs.req_pool_indices,
                            inputs.seq_lens,
                            inputs.accepted_lens,
                            inputs.token_ids,
                            inputs.cu_seqlens.value_or(inputs.seq_lens),
                            inputs.hidden_states.value_or(inputs.seq_lens),
                            out.next_seq_lens,
                            out.extend_lens,
                            out.next_token_ids,
                            out.positions,
                            out.out_full_loc,
                            out.out_swa_loc,
                            out.sampled_index,
                            out.next_hidden.value_or(out.extend_lens)};
    npu::launch_on(
        "advance_step", memory, advance_blocks(p, npu::vector_cores(inputs.seq_lens)),
        [p = p, errors = npu::error_lanes(inputs.seq_lens)](uint32_t blocks, void* stream, auto... at) mutable {
            return ACLRT_LAUNCH_KERNEL(advance_step)(blocks, stream, at..., errors, &p);
        });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_advance_step<&launch_advance_step>(m); }

}  // namespace dsv4
