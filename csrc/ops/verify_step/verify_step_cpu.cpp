#include <torch/library.h>

#include <cstring>

#include "cpu/step_metadata_loops.h"
#include "cpu/step_slot_loops.h"
#include "ops/verify_step/verify_step.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "verify_step";

void check_group_positions(const cpu::ScannedStep& step, const VerifyStepParams& p) {
    TORCH_CHECK_INDEX(step.group_positions_end <= p.max_pos, kOp, ": positions_c4 reaches ",
                      step.group_positions_end - 1, ", expected 0 <= position < ", p.max_pos, " (rows of rope_cos)");
}

// positions: [capacity] int64; out: [capacity, D]. The zero tail gets the row of position 0, a rotation by nothing.
void write_rope_rows(const at::Tensor& positions, const at::Tensor& table, const at::Tensor& out,
                     const VerifyStepParams& p) {
    const int64_t* rows = positions.const_data_ptr<int64_t>();
    const float* source = table.const_data_ptr<float>();
    float* target = out.mutable_data_ptr<float>();
    const int64_t num_rows = positions.size(0);
    for (int64_t i = 0; i < num_rows; ++i) {
        std::memcpy(target + rope_row_offset_elems(i, p), source + rope_row_offset_elems(rows[i], p),
                    p.rope_dim * sizeof(float));
    }
}

void run(const StepInputs& inputs, const SlotTables& tables, const RopeTables& rope, int64_t page_size, int64_t window,
         const SlotTensors& slots, const MetadataTensors& metadata, const GroupRopeTensors& rows) {
    const VerifyStepParams p = check_verify_step(inputs, tables, rope, page_size, window, slots, metadata, rows);
    const cpu::ScannedStep step = cpu::scan_step(kOp, p.rows, inputs);
    cpu::check_metadata_capacity(kOp, step, p.metadata);
    cpu::check_slot_capacity(kOp, step, p.slots);
    check_group_positions(step, p);
    cpu::write_step_slots(step, p.slots, tables, slots);
    cpu::write_step_metadata(step, p.metadata, {tables.swa, tables.c4, tables.c128, tables.c4_state, tables.c128_state},
                             metadata);
    write_rope_rows(metadata.positions_c4, rope.cos, rows.c4_cos, p);
    write_rope_rows(metadata.positions_c4, rope.sin, rows.c4_sin, p);
    write_rope_rows(metadata.positions_c128, rope.cos, rows.c128_cos, p);
    write_rope_rows(metadata.positions_c128, rope.sin, rows.c128_sin, p);
}

void verify_step_out_cpu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                         const at::Tensor& c128_table, const at::Tensor& c4_state_table,
                         const at::Tensor& c128_state_table, const at::Tensor& req_pool_indices,
                         const at::Tensor& seq_lens, const std::optional<at::Tensor>& num_draft_tokens,
                         const at::Tensor& rope_cos, const at::Tensor& rope_sin, int64_t width, int64_t max_seq_len,
                         int64_t page_size, int64_t window, int64_t max_context_len, const at::Tensor& out_full_loc,
                         const at::Tensor& out_swa_loc, const at::Tensor& out_c4_loc, const at::Tensor& out_c128_loc,
                         const at::Tensor& out_c4_state_loc, const at::Tensor& out_c128_state_loc,
                         const at::Tensor& positions_c4, const at::Tensor& positions_c128, const at::Tensor& c4_loc,
                         const at::Tensor& c128_loc, const at::Tensor& start_pos, const at::Tensor& seqused,
                         const at::Tensor& cu_seqlens, const at::Tensor& positions, const at::Tensor& kv_lens,
                         const at::Tensor& swa_page_table, const at::Tensor& c4_page_table,
                         const at::Tensor& c128_page_table, const at::Tensor& c4_state_page_table,
                         const at::Tensor& c128_state_page_table, const at::Tensor& c4_cos, const at::Tensor& c4_sin,
                         const at::Tensor& c128_cos, const at::Tensor& c128_sin) {
    run(verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_seq_len, max_context_len),
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}, {rope_cos, rope_sin},
        page_size, window, {out_full_loc, out_swa_loc, out_c4_loc, out_c128_loc, out_c4_state_loc, out_c128_state_loc},
        {positions_c4, positions_c128, c4_loc, c128_loc, start_pos, seqused, cu_seqlens, positions, kv_lens,
         swa_page_table, c4_page_table, c128_page_table, c4_state_page_table, c128_state_page_table},
        {c4_cos, c4_sin, c128_cos, c128_sin});
}

using TwentyFour =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor,
               at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor,
               at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

TwentyFour verify_step_cpu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                           const at::Tensor& c128_table, const at::Tensor& c4_state_table,
                           const at::Tensor& c128_state_table, const at::Tensor& req_pool_indices,
                           const at::Tensor& seq_lens, const std::optional<at::Tensor>& num_draft_tokens,
                           const at::Tensor& rope_cos, const at::Tensor& rope_sin, int64_t width, int64_t num_tokens,
                           int64_t max_seq_len, int64_t page_size, int64_t window, int64_t max_context_len) {
    const StepInputs inputs =
        verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_seq_len, max_context_len);
    const SlotTables tables{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
    const RopeTables rope{rope_cos, rope_sin};
    MetadataTensors m = empty_step_metadata(
        kOp, inputs, {swa_table, c4_table, c128_table, c4_state_table, c128_state_table}, num_tokens, page_size);
    SlotTensors s =
        empty_step_slots(kOp, req_pool_indices, tables, num_tokens, m.positions_c4.size(0), m.positions_c128.size(0));
    GroupRopeTensors r = empty_group_rope(rope, m);
    run(inputs, tables, rope, page_size, window, s, m, r);
    return {std::move(s.out_full_loc),
            std::move(s.out_swa_loc),
            std::move(s.out_c4_loc),
            std::move(s.out_c128_loc),
            std::move(s.out_c4_state_loc),
            std::move(s.out_c128_state_loc),
            std::move(m.positions_c4),
            std::move(m.positions_c128),
            std::move(m.c4_loc),
            std::move(m.c128_loc),
            std::move(m.start_pos),
            std::move(m.seqused),
            std::move(m.cu_seqlens),
            std::move(m.positions),
            std::move(m.kv_lens),
            std::move(m.swa_page_table),
            std::move(m.c4_page_table),
            std::move(m.c128_page_table),
            std::move(m.c4_state_page_table),
            std::move(m.c128_state_page_table),
            std::move(r.c4_cos),
            std::move(r.c4_sin),
            std::move(r.c128_cos),
            std::move(r.c128_sin)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) {
    m.impl("verify_step", &verify_step_cpu);
    m.impl("verify_step.out", &verify_step_out_cpu);
}

}  // namespace dsv4
