#include "kernel_operator.h"
#include "ops/verify_step/verify_step_index.h"
#include "step_loops.h"

extern "C" __global__ __aicore__ void verify_step(
    GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table, GM_ADDR c128_table, GM_ADDR c4_state_table,
    GM_ADDR c128_state_table, GM_ADDR requests, GM_ADDR lengths, GM_ADDR widths, GM_ADDR rope_cos, GM_ADDR rope_sin,
    GM_ADDR out_full_loc, GM_ADDR out_swa_loc, GM_ADDR out_c4_loc, GM_ADDR out_c128_loc, GM_ADDR out_c4_state_loc,
    GM_ADDR out_c128_state_loc, GM_ADDR positions_c4, GM_ADDR positions_c128, GM_ADDR c4_loc, GM_ADDR c128_loc,
    GM_ADDR start_pos, GM_ADDR seqused, GM_ADDR cu_seqlens, GM_ADDR positions, GM_ADDR kv_lens, GM_ADDR swa_page_table,
    GM_ADDR c4_page_table, GM_ADDR c128_page_table, GM_ADDR c4_state_page_table, GM_ADDR c128_state_page_table,
    GM_ADDR c4_cos, GM_ADDR c4_sin, GM_ADDR c128_cos, GM_ADDR c128_sin, GM_ADDR error_lanes, VerifyStepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    dsv4::naive::StepLoops step(&pipe, requests, lengths, widths, p.rows);
    const int64_t tokens = p.rows.num_tokens;
    const int64_t c4_groups = p.metadata.c4_capacity_groups;
    const int64_t c128_groups = p.metadata.c128_capacity_groups;
    step.slots<1>(full_table, p.slots.full_row_elems, out_full_loc, tokens);
    step.slots<1>(swa_table, p.slots.swa_row_elems, out_swa_loc, tokens);
    step.slots<dsv4::kRatioC4>(c4_table, p.slots.c4_row_elems, out_c4_loc, p.slots.c4_capacity_groups);
    step.slots<dsv4::kRatioC128>(c128_table, p.slots.c128_row_elems, out_c128_loc, p.slots.c128_capacity_groups);
    step.slots<1>(c4_state_table, p.slots.c4_state_row_elems, out_c4_state_loc, tokens);
    step.slots<1>(c128_state_table, p.slots.c128_state_row_elems, out_c128_state_loc, tokens);
    step.row_vectors(start_pos, seqused, kv_lens, cu_seqlens);
    step.positions<1>(positions, tokens);
    step.positions<dsv4::kRatioC4>(positions_c4, c4_groups);
    step.positions<dsv4::kRatioC128>(positions_c128, c128_groups);
    step.slots<dsv4::kRatioC4>(c4_table, p.metadata.c4_row_elems, c4_loc, c4_groups);
    step.slots<dsv4::kRatioC128>(c128_table, p.metadata.c128_row_elems, c128_loc, c128_groups);
    step.page_table(dsv4::kSwa, swa_table, swa_page_table, p.metadata);
    step.page_table(dsv4::kC4, c4_table, c4_page_table, p.metadata);
    step.page_table(dsv4::kC128, c128_table, c128_page_table, p.metadata);
    step.page_table(dsv4::kC4State, c4_state_table, c4_state_page_table, p.metadata);
    step.page_table(dsv4::kC128State, c128_state_table, c128_state_page_table, p.metadata);
    step.rope_rows<dsv4::kRatioC4>(rope_cos, p.max_pos, p.rope_dim, c4_cos, c4_groups);
    step.rope_rows<dsv4::kRatioC4>(rope_sin, p.max_pos, p.rope_dim, c4_sin, c4_groups);
    step.rope_rows<dsv4::kRatioC128>(rope_cos, p.max_pos, p.rope_dim, c128_cos, c128_groups);
    step.rope_rows<dsv4::kRatioC128>(rope_sin, p.max_pos, p.rope_dim, c128_sin, c128_groups);
}
