#include <torch/library.h>

#include "cpu/step_slot_loops.h"
#include "ops/verify_bundle/verify_bundle.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "verify_bundle";

void run(const StepInputs& inputs, const SlotTables& tables, const SlotTensors& out) {
    const VerifyBundleParams p = check_verify_bundle(inputs, tables, out);
    const cpu::ScannedStep step = cpu::scan_step(kOp, p.rows, inputs);
    cpu::check_slot_capacity(kOp, step, p.slots);
    cpu::write_step_slots(step, p.slots, tables, out);
}

void verify_bundle_out_cpu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
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

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> verify_bundle_cpu(
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

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) {
    m.impl("verify_bundle", &verify_bundle_cpu);
    m.impl("verify_bundle.out", &verify_bundle_out_cpu);
}

}  // namespace dsv4
