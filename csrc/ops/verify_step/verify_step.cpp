#include "ops/verify_step/verify_step.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/check.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "verify_step";

void check_rope_tables(const RopeTables& rope, const at::Tensor& req_pool_indices) {
    check::dim(kOp, "rope_cos", rope.cos, 2);
    TORCH_CHECK_VALUE(rope.cos.size(0) >= 1, kOp, ": rope_cos has shape ", rope.cos.sizes(),
                      ", expected at least 1 row");
    check_step_output(kOp, "rope_cos", rope.cos, at::kFloat, rope.cos.sizes(), req_pool_indices);
    check_step_output(kOp, "rope_sin", rope.sin, at::kFloat, rope.cos.sizes(), req_pool_indices);
}

}  // namespace

VerifyStepParams check_verify_step(const StepInputs& inputs, const SlotTables& tables, const RopeTables& rope,
                                   int64_t page_size, int64_t window, const SlotTensors& slots,
                                   const MetadataTensors& metadata, const GroupRopeTensors& rows) {
    const at::Tensor& requests = inputs.req_pool_indices;
    check::dim(kOp, "positions", metadata.positions, 1);
    VerifyStepParams p{};
    p.rows = check_step_inputs(kOp, inputs, tables.swa, metadata.positions.size(0));
    p.metadata = check_step_metadata(kOp, p.rows, inputs,
                                     {tables.swa, tables.c4, tables.c128, tables.c4_state, tables.c128_state},
                                     page_size, window, metadata);
    p.slots = check_step_slots(kOp, p.rows, requests, tables, slots);
    check_rope_tables(rope, requests);
    p.max_pos = rope.cos.size(0);
    p.rope_dim = rope.cos.size(1);
    const int64_t c4_rows = p.metadata.c4_capacity_groups;
    const int64_t c128_rows = p.metadata.c128_capacity_groups;
    check_step_output(kOp, "c4_cos", rows.c4_cos, at::kFloat, {c4_rows, p.rope_dim}, requests);
    check_step_output(kOp, "c4_sin", rows.c4_sin, at::kFloat, {c4_rows, p.rope_dim}, requests);
    check_step_output(kOp, "c128_cos", rows.c128_cos, at::kFloat, {c128_rows, p.rope_dim}, requests);
    check_step_output(kOp, "c128_sin", rows.c128_sin, at::kFloat, {c128_rows, p.rope_dim}, requests);
    return p;
}

GroupRopeTensors empty_group_rope(const RopeTables& rope, const MetadataTensors& metadata) {
    check::dim(kOp, "rope_cos", rope.cos, 2);
    const int64_t rope_dim = rope.cos.size(1);
    const at::TensorOptions float32 = metadata.positions.options().dtype(at::kFloat);
    const int64_t c4_rows = metadata.positions_c4.size(0);
    const int64_t c128_rows = metadata.positions_c128.size(0);
    return GroupRopeTensors{at::empty({c4_rows, rope_dim}, float32), at::empty({c4_rows, rope_dim}, float32),
                            at::empty({c128_rows, rope_dim}, float32), at::empty({c128_rows, rope_dim}, float32)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "verify_step(Tensor full_table, Tensor swa_table, Tensor c4_table, Tensor c128_table, Tensor c4_state_table,"
        " Tensor c128_state_table, Tensor req_pool_indices, Tensor seq_lens, Tensor? num_draft_tokens,"
        " Tensor rope_cos, Tensor rope_sin, int width, SymInt num_tokens, SymInt max_seq_len, int page_size,"
        " int window, int max_context_len)"
        " -> (Tensor out_full_loc, Tensor out_swa_loc, Tensor out_c4_loc, Tensor out_c128_loc,"
        " Tensor out_c4_state_loc, Tensor out_c128_state_loc, Tensor positions_c4, Tensor positions_c128,"
        " Tensor c4_loc, Tensor c128_loc, Tensor start_pos, Tensor seqused, Tensor cu_seqlens, Tensor positions,"
        " Tensor kv_lens, Tensor swa_page_table, Tensor c4_page_table, Tensor c128_page_table,"
        " Tensor c4_state_page_table, Tensor c128_state_page_table, Tensor c4_cos, Tensor c4_sin, Tensor c128_cos,"
        " Tensor c128_sin)");
    m.def(
        "verify_step.out(Tensor full_table, Tensor swa_table, Tensor c4_table, Tensor c128_table,"
        " Tensor c4_state_table, Tensor c128_state_table, Tensor req_pool_indices, Tensor seq_lens,"
        " Tensor? num_draft_tokens, Tensor rope_cos, Tensor rope_sin, int width, int max_seq_len, int page_size,"
        " int window, int max_context_len, *, Tensor(a!) out_full_loc, Tensor(b!) out_swa_loc, Tensor(c!) out_c4_loc,"
        " Tensor(d!) out_c128_loc, Tensor(e!) out_c4_state_loc, Tensor(f!) out_c128_state_loc,"
        " Tensor(g!) positions_c4, Tensor(h!) positions_c128, Tensor(i!) c4_loc, Tensor(j!) c128_loc,"
        " Tensor(k!) start_pos, Tensor(l!) seqused, Tensor(m!) cu_seqlens, Tensor(n!) positions, Tensor(o!) kv_lens,"
        " Tensor(p!) swa_page_table, Tensor(q!) c4_page_table, Tensor(r!) c128_page_table,"
        " Tensor(s!) c4_state_page_table, Tensor(t!) c128_state_page_table, Tensor(u!) c4_cos, Tensor(v!) c4_sin,"
        " Tensor(w!) c128_cos, Tensor(x!) c128_sin) -> ()");
}

}  // namespace dsv4
