#pragma once

#include <torch/library.h>

#include "ops/verify_bundle/verify_bundle_index.h"
#include "torch/step_slot_tensors.h"

namespace dsv4 {

// Checks every argument of verify_bundle.out but the values in tensors.
VerifyBundleParams check_verify_bundle(const StepInputs& inputs, const SlotTables& tables, const SlotTensors& out);

// The two forms over a backend's run(params, inputs, tables, out).
template <auto run>
struct VerifyBundleForms {
    static void out(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                    const at::Tensor& c128_table, const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                    const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                    const std::optional<at::Tensor>& num_draft_tokens, int64_t width, int64_t max_context_len,
                    const at::Tensor& out_full_loc, const at::Tensor& out_swa_loc, const at::Tensor& out_c4_loc,
                    const at::Tensor& out_c128_loc, const at::Tensor& out_c4_state_loc,
                    const at::Tensor& out_c128_state_loc) {
        check_and_run(
            verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_context_len, max_context_len),
            {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table},
            {out_full_loc, out_swa_loc, out_c4_loc, out_c128_loc, out_c4_state_loc, out_c128_state_loc});
    }

    static TensorTuple<6> functional(const at::Tensor& full_table, const at::Tensor& swa_table,
                                     const at::Tensor& c4_table, const at::Tensor& c128_table,
                                     const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                                     const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                                     const std::optional<at::Tensor>& num_draft_tokens, int64_t width,
                                     int64_t num_tokens, int64_t c4_groups, int64_t c128_groups,
                                     int64_t max_context_len) {
        const SlotTables tables{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
        SlotTensors out =
            empty_step_slots("verify_bundle", req_pool_indices, tables, num_tokens, c4_groups, c128_groups);
        check_and_run(
            verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_context_len, max_context_len),
            tables, out);
        return as_results(std::move(out));
    }

  private:
    static void check_and_run(const StepInputs& inputs, const SlotTables& tables, const SlotTensors& out) {
        run(check_verify_bundle(inputs, tables, out), inputs, tables, out);
    }
};

template <auto run>
void register_verify_bundle(torch::Library& library) {
    library.impl("verify_bundle", &VerifyBundleForms<run>::functional);
    library.impl("verify_bundle.out", &VerifyBundleForms<run>::out);
}

}  // namespace dsv4
