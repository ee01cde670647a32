#include "kernel_operator.h"
#include "ops/compress_metadata/compress_metadata_index.h"
#include "step_loops.h"

extern "C" __global__ __aicore__ void compress_metadata(
    GM_ADDR swa_table, GM_ADDR c4_table, GM_ADDR c128_table, GM_ADDR c4_state_table, GM_ADDR c128_state_table,
    GM_ADDR requests, GM_ADDR lengths, GM_ADDR operands, GM_ADDR positions_c4, GM_ADDR positions_c128, GM_ADDR c4_loc,
    GM_ADDR c128_loc, GM_ADDR start_pos, GM_ADDR seqused, GM_ADDR cu_seqlens, GM_ADDR positions, GM_ADDR kv_lens,
    GM_ADDR swa_page_table, GM_ADDR c4_page_table, GM_ADDR c128_page_table, GM_ADDR c4_state_page_table,
    GM_ADDR c128_state_page_table, GM_ADDR error_lanes, CompressMetadataParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    dsv4::naive::StepLoops step(&pipe, requests, lengths, operands, p.rows);
    step.row_vectors(start_pos, seqused, kv_lens, cu_seqlens);
    step.positions<1>(positions, p.rows.num_tokens);
    step.positions<dsv4::kRatioC4>(positions_c4, p.metadata.c4_capacity_groups);
    step.positions<dsv4::kRatioC128>(positions_c128, p.metadata.c128_capacity_groups);
    step.slots<dsv4::kRatioC4>(c4_table, p.metadata.c4_row_elems, c4_loc, p.metadata.c4_capacity_groups);
    step.slots<dsv4::kRatioC128>(c128_table, p.metadata.c128_row_elems, c128_loc, p.metadata.c128_capacity_groups);
    step.page_table(dsv4::kSwa, swa_table, swa_page_table, p.metadata);
    step.page_table(dsv4::kC4, c4_table, c4_page_table, p.metadata);
    step.page_table(dsv4::kC128, c128_table, c128_page_table, p.metadata);
    step.page_table(dsv4::kC4State, c4_state_table, c4_state_page_table, p.metadata);
    step.page_table(dsv4::kC128State, c128_state_table, c128_state_page_table, p.metadata);
}
