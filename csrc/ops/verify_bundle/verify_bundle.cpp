#include "ops/verify_bundle/verify_bundle.h"

#include <torch/library.h>

namespace dsv4 {

VerifyBundleParams check_verify_bundle(const StepInputs& inputs, const SlotTables& tables, const SlotTensors& out) {
    constexpr char kOp[] = "verify_bundle";
    const StepRowsParams rows = check_step_inputs(kOp, inputs, tables.swa, tokens_of_slots(tables, out));
    return VerifyBundleParams{rows, check_step_slots(kOp, rows, inputs.req_pool_indices, tables, out)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "verify_bundle(Tensor full_table, Tensor swa_table, Tensor c4_table, Tensor c128_table, Tensor c4_state_table,"
        " Tensor c128_state_table, Tensor req_pool_indices, Tensor seq_lens, Tensor? num_draft_tokens, int width,"
        " SymInt num_tokens, SymInt c4_groups, SymInt c128_groups, int max_context_len)"
        " -> (Tensor out_full_loc, Tensor out_swa_loc, Tensor out_c4_loc, Tensor out_c128_loc,"
        " Tensor out_c4_state_loc, Tensor out_c128_state_loc)");
    m.def(
        "verify_bundle.out(Tensor full_table, Tensor swa_table, Tensor c4_table, Tensor c128_table,"
        " Tensor c4_state_table, Tensor c128_state_table, Tensor req_pool_indices, Tensor seq_lens,"
        " Tensor? num_draft_tokens, int width, int max_context_len, *, Tensor(a!) out_full_loc,"
        " Tensor(b!) out_swa_loc, Tensor(c!) out_c4_loc, Tensor(d!) out_c128_loc, Tensor(e!) out_c4_state_loc,"
        " Tensor(f!) out_c128_state_loc) -> ()");
}

}  // namespace dsv4
