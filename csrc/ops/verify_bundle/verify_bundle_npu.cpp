#include <torch/library.h>

#include "ops/verify_bundle/verify_bundle.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_verify_bundle.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "verify_bundle";

void run(const StepInputs& inputs, const SlotTables& tables, const SlotTensors& out) {
    const VerifyBundleParams p = check_verify_bundle(inputs, tables, out);
    check::device_step(kOp, p.rows);
    // The uniform form has no widths to read.
    const at::Tensor widths = inputs.operand().value_or(inputs.seq_lens);
    const std::array<at::Tensor, 9> read{tables.full,
                                         tables.swa,
                                         tables.c4,
                                         tables.c128,
                                         tables.c4_state,
                                         tables.c128_state,
                                         inputs.req_pool_indices,
                                         inputs.seq_lens,
                                         widths};
    const std::array<at::Tensor, 6> written{out.out_full_loc, out.out_swa_loc,      out.out_c4_loc,
                                            out.out_c128_loc, out.out_c4_state_loc, out.out_c128_state_loc};
    npu::launch(kOp,
                {read[0], read[1], read[2], read[3], read[4], read[5], read[6], read[7], read[8], written[0],
                 written[1], written[2], written[3], written[4], written[5]},
                blocks_for(slot_bytes(p.rows, p.slots), kGrainBytes, npu::vector_cores(tables.full)),
                [p = p, from = npu::addresses(read), to = npu::addresses(written),
                 errors = npu::error_lanes(tables.full)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(verify_bundle)(blocks, stream, from[0], from[1], from[2], from[3],
                                                              from[4], from[5], from[6], from[7], from[8], to[0], to[1],
                                                              to[2], to[3], to[4], to[5], errors, &p);
                });
}

void verify_bundle_out_npu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                           const at::Tensor& c128_table, const at::Tensor& c4_state_table,
                           const at::Tensor& c128_state_table, const at::Tensor& req_pool_indices,
                           const at::Tensor& seq_lens, const std::optional<at::Tensor>& num_draft_tokens, int64_t width,
                           int64_t max_context_len, const at::Tensor& out_full_loc, const at::Tensor& out_swa_loc,
                           const at::Tensor& out_c4_loc, const at::Tensor& out_c128_loc,
                           const at::Tensor& out_c4_state_loc, const at::Tensor& out_c128_state_loc) {
    run(verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_context_len, max_context_len),
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table},
        {out_full_loc, out_swa_loc, out_c4_loc, out_c128_loc, out_c4_state_loc, out_c128_state_loc});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> verify_bundle_npu(
    const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table, const at::Tensor& c128_table,
    const at::Tensor& c4_state_table, const at::Tensor& c128_state_table, const at::Tensor& req_pool_indices,
    const at::Tensor& seq_lens, const std::optional<at::Tensor>& num_draft_tokens, int64_t width, int64_t num_tokens,
    int64_t c4_groups, int64_t c128_groups, int64_t max_context_len) {
    const SlotTables tables{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
    SlotTensors out = empty_step_slots(kOp, req_pool_indices, tables, num_tokens, c4_groups, c128_groups);
    run(verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_context_len, max_context_len), tables,
        out);
    return {std::move(out.out_full_loc), std::move(out.out_swa_loc),      std::move(out.out_c4_loc),
            std::move(out.out_c128_loc), std::move(out.out_c4_state_loc), std::move(out.out_c128_state_loc)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    m.impl("verify_bundle", &verify_bundle_npu);
    m.impl("verify_bundle.out", &verify_bundle_out_npu);
}

}  // namespace dsv4
