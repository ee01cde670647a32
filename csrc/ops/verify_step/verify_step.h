#pragma once

#include <torch/library.h>

#include "ops/verify_step/verify_step_index.h"
#include "torch/step_slot_tensors.h"

namespace dsv4 {

// cos and sin [max_pos, D] float32 of the compressed layers' base.
struct RopeTables {
    const at::Tensor& cos;
    const at::Tensor& sin;
};

// Rows at positions_c4 and positions_c128, their zero tail included: [capacity, D] float32.
struct GroupRopeTensors {
    at::Tensor c4_cos;
    at::Tensor c4_sin;
    at::Tensor c128_cos;
    at::Tensor c128_sin;
};

// Checks every argument of verify_step.out but the values in tensors.
VerifyStepParams check_verify_step(const StepInputs& inputs, const SlotTables& tables, const RopeTables& rope,
                                   int64_t page_size, int64_t window, const SlotTensors& slots,
                                   const MetadataTensors& metadata, const GroupRopeTensors& rows);

GroupRopeTensors empty_group_rope(const RopeTables& rope, const MetadataTensors& metadata);

// The two forms over a backend's run(params, inputs, tables, rope, slots, metadata, rows).
template <auto run>
struct VerifyStepForms {
    static void out(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                    const at::Tensor& c128_table, const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                    const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                    const std::optional<at::Tensor>& num_draft_tokens, const at::Tensor& rope_cos,
                    const at::Tensor& rope_sin, int64_t width, int64_t max_seq_len, int64_t page_size, int64_t window,
                    int64_t max_context_len, const at::Tensor& out_full_loc, const at::Tensor& out_swa_loc,
                    const at::Tensor& out_c4_loc, const at::Tensor& out_c128_loc, const at::Tensor& out_c4_state_loc,
                    const at::Tensor& out_c128_state_loc, const at::Tensor& positions_c4,
                    const at::Tensor& positions_c128, const at::Tensor& c4_loc, const at::Tensor& c128_loc,
                    const at::Tensor& start_pos, const at::Tensor& seqused, const at::Tensor& cu_seqlens,
                    const at::Tensor& positions, const at::Tensor& kv_lens, const at::Tensor& swa_page_table,
                    const at::Tensor& c4_page_table, const at::Tensor& c128_page_table,
                    const at::Tensor& c4_state_page_table, const at::Tensor& c128_state_page_table,
                    const at::Tensor& c4_cos, const at::Tensor& c4_sin, const at::Tensor& c128_cos,
                    const at::Tensor& c128_sin) {
        check_and_run(
            verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_seq_len, max_context_len),
            {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}, {rope_cos, rope_sin},
            page_size, window,
            {out_full_loc, out_swa_loc, out_c4_loc, out_c128_loc, out_c4_state_loc, out_c128_state_loc},
            {positions_c4, positions_c128, c4_loc, c128_loc, start_pos, seqused, cu_seqlens, positions, kv_lens,
             swa_page_table, c4_page_table, c128_page_table, c4_state_page_table, c128_state_page_table},
            {c4_cos, c4_sin, c128_cos, c128_sin});
    }

    static TensorTuple<24> functional(const at::Tensor& full_table, const at::Tensor& swa_table,
                                      const at::Tensor& c4_table, const at::Tensor& c128_table,
                                      const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                                      const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                                      const std::optional<at::Tensor>& num_draft_tokens, const at::Tensor& rope_cos,
                                      const at::Tensor& rope_sin, int64_t width, int64_t num_tokens,
                                      int64_t max_seq_len, int64_t page_size, int64_t window,
                                      int64_t max_context_len) {
        constexpr char kOp[] = "verify_step";
        const StepInputs inputs =
            verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_seq_len, max_context_len);
        const SlotTables tables{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
        const RopeTables rope{rope_cos, rope_sin};
        MetadataTensors metadata = empty_step_metadata(
            kOp, inputs, {swa_table, c4_table, c128_table, c4_state_table, c128_state_table}, num_tokens, page_size);
        SlotTensors slots = empty_step_slots(kOp, req_pool_indices, tables, num_tokens, metadata.positions_c4.size(0),
                                             metadata.positions_c128.size(0));
        GroupRopeTensors rows = empty_group_rope(rope, metadata);
        check_and_run(inputs, tables, rope, page_size, window, slots, metadata, rows);
        return std::tuple_cat(as_results(std::move(slots)), as_results(std::move(metadata)),
                              TensorTuple<4>{rows.c4_cos, rows.c4_sin, rows.c128_cos, rows.c128_sin});
    }

  private:
    static void check_and_run(const StepInputs& inputs, const SlotTables& tables, const RopeTables& rope,
                              int64_t page_size, int64_t window, const SlotTensors& slots,
                              const MetadataTensors& metadata, const GroupRopeTensors& rows) {
        run(check_verify_step(inputs, tables, rope, page_size, window, slots, metadata, rows), inputs, tables, rope,
            slots, metadata, rows);
    }
};

template <auto run>
void register_verify_step(torch::Library& library) {
    library.impl("verify_step", &VerifyStepForms<run>::functional);
    library.impl("verify_step.out", &VerifyStepForms<run>::out);
}

}  // namespace dsv4
