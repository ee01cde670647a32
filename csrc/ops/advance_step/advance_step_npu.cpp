#include <torch/library.h>

#include "ops/advance_step/advance_step.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_advance_step.h"

namespace dsv4 {
namespace {

void run(const AdvanceInputs& inputs, const AdvanceOutputs& out) {
    const AdvanceStepParams p = check_advance_step(inputs, out);
    if (p.num_rows == 0) {
        return;
    }
    // What is not given is not read or written.
    const std::array<at::Tensor, 8> read{inputs.full_table,
                                         inputs.swa_table,
                                         inputs.req_pool_indices,
                                         inputs.seq_lens,
                                         inputs.accepted_lens,
                                         inputs.token_ids,
                                         inputs.cu_seqlens.value_or(inputs.seq_lens),
                                         inputs.hidden_states.value_or(inputs.seq_lens)};
    const std::array<at::Tensor, 8> written{out.next_seq_lens, out.extend_lens,
                                            out.next_token_ids, out.positions,
                                            out.out_full_loc, out.out_swa_loc,
                                            out.sampled_index, out.next_hidden.value_or(out.extend_lens)};
    npu::launch("advance_step",
                {read[0], read[1], read[2], read[3], read[4], read[5], read[6], read[7], written[0], written[1],
                 written[2], written[3], written[4], written[5], written[6], written[7]},
                advance_blocks(p, npu::vector_cores(inputs.seq_lens)),
                [p = p, from = npu::addresses(read), to = npu::addresses(written),
                 errors = npu::error_lanes(inputs.seq_lens)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(advance_step)(blocks, stream, from[0], from[1], from[2], from[3], from[4],
                                                             from[5], from[6], from[7], to[0], to[1], to[2], to[3], to[4],
                                                             to[5], to[6], to[7], errors, &p);
                });
}

void advance_step_out_npu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& req_pool_indices,
                          const at::Tensor& seq_lens, const at::Tensor& accepted_lens, const at::Tensor& token_ids,
                          const std::optional<at::Tensor>& cu_seqlens, const std::optional<at::Tensor>& hidden_states,
                          int64_t width, int64_t max_context_len, const at::Tensor& next_seq_lens,
                          const at::Tensor& extend_lens, const at::Tensor& next_token_ids, const at::Tensor& positions,
                          const at::Tensor& out_full_loc, const at::Tensor& out_swa_loc,
                          const at::Tensor& sampled_index, const std::optional<at::Tensor>& next_hidden) {
    run({full_table, swa_table, req_pool_indices, seq_lens, accepted_lens, token_ids, cu_seqlens, hidden_states, width,
         max_context_len},
        {next_seq_lens, extend_lens, next_token_ids, positions, out_full_loc, out_swa_loc, sampled_index, next_hidden});
}

AdvanceResults advance_step_npu(const at::Tensor& full_table, const at::Tensor& swa_table,
                                const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                                const at::Tensor& accepted_lens, const at::Tensor& token_ids,
                                const std::optional<at::Tensor>& cu_seqlens,
                                const std::optional<at::Tensor>& hidden_states, int64_t width,
                                int64_t max_context_len) {
    const AdvanceInputs inputs{full_table, swa_table,  req_pool_indices, seq_lens, accepted_lens,
                               token_ids,  cu_seqlens, hidden_states,    width,    max_context_len};
    AdvanceOutputs out = empty_advance_outputs(inputs);
    run(inputs, out);
    return advance_results(inputs, std::move(out));
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    m.impl("advance_step", &advance_step_npu);
    m.impl("advance_step.out", &advance_step_out_npu);
}

}  // namespace dsv4
