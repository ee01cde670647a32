#include "device/step_metadata.h"
#include "kernel_operator.h"
#include "ops/compress_metadata/compress_metadata_index.h"

// Every block reads the rows and writes an equal share of each output.
extern "C" __global__ __aicore__ void compress_metadata(
    GM_ADDR swa_table, GM_ADDR c4_table, GM_ADDR c128_table, GM_ADDR c4_state_table, GM_ADDR c128_state_table,
    GM_ADDR requests, GM_ADDR lengths, GM_ADDR operands, GM_ADDR positions_c4, GM_ADDR positions_c128, GM_ADDR c4_loc,
    GM_ADDR c128_loc, GM_ADDR start_pos, GM_ADDR seqused, GM_ADDR cu_seqlens, GM_ADDR positions, GM_ADDR kv_lens,
    GM_ADDR swa_page_table, GM_ADDR c4_page_table, GM_ADDR c128_page_table, GM_ADDR c4_state_page_table,
    GM_ADDR c128_state_page_table, GM_ADDR error_lanes, CompressMetadataParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    const dsv4::kernel::StepInputAddresses inputs{requests, lengths, operands};
    const dsv4::kernel::MetadataTableAddresses tables{swa_table, c4_table, c128_table, c4_state_table,
                                                      c128_state_table};
    const dsv4::kernel::MetadataAddresses out{positions_c4,
                                              positions_c128,
                                              c4_loc,
                                              c128_loc,
                                              start_pos,
                                              seqused,
                                              cu_seqlens,
                                              positions,
                                              kv_lens,
                                              swa_page_table,
                                              c4_page_table,
                                              c128_page_table,
                                              c4_state_page_table,
                                              c128_state_page_table};
    const dsv4::StepTotals limit{p.rows.num_tokens, p.metadata.c4_capacity_groups, p.metadata.c128_capacity_groups};
    dsv4::kernel::StepRows rows(&pipe, inputs, error_lanes, dsv4::kErrorOpCompressMetadata, p.rows, limit);
    rows.scan();
    dsv4::kernel::StepEntries entries(rows);
    dsv4::kernel::write_step_metadata(rows, entries, p.metadata, tables, out);
    rows.errors().flush();
}
