#include "kernel_operator.h"
#include "ops/verify_bundle/verify_bundle_index.h"
#include "step_loops.h"

extern "C" __global__ __aicore__ void verify_bundle(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                    GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                    GM_ADDR c128_state_table, GM_ADDR requests, GM_ADDR lengths,
                                                    GM_ADDR widths, GM_ADDR out_full_loc, GM_ADDR out_swa_loc,
                                                    GM_ADDR out_c4_loc, GM_ADDR out_c128_loc, GM_ADDR out_c4_state_loc,
                                                    GM_ADDR out_c128_state_loc, GM_ADDR error_lanes,
                                                    VerifyBundleParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    dsv4::naive::StepLoops step(&pipe, requests, lengths, widths, p.rows);
    const int64_t tokens = p.rows.num_tokens;
    step.slots<1>(full_table, p.slots.full_row_elems, out_full_loc, tokens);
    step.slots<1>(swa_table, p.slots.swa_row_elems, out_swa_loc, tokens);
    step.slots<dsv4::kRatioC4>(c4_table, p.slots.c4_row_elems, out_c4_loc, p.slots.c4_capacity_groups);
    step.slots<dsv4::kRatioC128>(c128_table, p.slots.c128_row_elems, out_c128_loc, p.slots.c128_capacity_groups);
    step.slots<1>(c4_state_table, p.slots.c4_state_row_elems, out_c4_state_loc, tokens);
    step.slots<1>(c128_state_table, p.slots.c128_state_row_elems, out_c128_state_loc, tokens);
}
