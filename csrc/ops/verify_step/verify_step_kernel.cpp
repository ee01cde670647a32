#include "device/group_rope.h"
#include "device/step_metadata.h"
#include "device/step_slots.h"
#include "kernel_operator.h"
#include "ops/verify_step/verify_step_index.h"

// verify_bundle, compress_metadata and the RoPE rows of the completed groups in one launch: every block reads the rows
// once and writes an equal share of each output.
extern "C" __global__ __aicore__ void verify_step(
    GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table, GM_ADDR c128_table, GM_ADDR c4_state_table,
    GM_ADDR c128_state_table, GM_ADDR requests, GM_ADDR lengths, GM_ADDR widths, GM_ADDR rope_cos, GM_ADDR rope_sin,
    GM_ADDR out_full_loc, GM_ADDR out_swa_loc, GM_ADDR out_c4_loc, GM_ADDR out_c128_loc, GM_ADDR out_c4_state_loc,
    GM_ADDR out_c128_state_loc, GM_ADDR positions_c4, GM_ADDR positions_c128, GM_ADDR c4_loc, GM_ADDR c128_loc,
    GM_ADDR start_pos, GM_ADDR seqused, GM_ADDR cu_seqlens, GM_ADDR positions, GM_ADDR kv_lens, GM_ADDR swa_page_table,
    GM_ADDR c4_page_table, GM_ADDR c128_page_table, GM_ADDR c4_state_page_table, GM_ADDR c128_state_page_table,
    GM_ADDR c4_cos, GM_ADDR c4_sin, GM_ADDR c128_cos, GM_ADDR c128_sin, GM_ADDR error_lanes, VerifyStepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    const dsv4::kernel::StepInputAddresses inputs{requests, lengths, widths};
    const dsv4::kernel::PoolAddresses pools{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const dsv4::kernel::PoolAddresses slots{
        {out_full_loc, out_swa_loc, out_c4_loc, out_c128_loc, out_c4_state_loc, out_c128_state_loc}};
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
    dsv4::StepTotals limit = dsv4::kernel::slot_limit(p.rows, p.slots);
    limit.c4_groups = dsv4::min_of(limit.c4_groups, p.metadata.c4_capacity_groups);
    limit.c128_groups = dsv4::min_of(limit.c128_groups, p.metadata.c128_capacity_groups);
    dsv4::kernel::StepRows rows(&pipe, inputs, error_lanes, dsv4::kErrorOpVerifyStep, p.rows, limit);
    rows.scan();
    dsv4::kernel::StepEntries entries(rows);
    dsv4::kernel::write_step_slots(rows, entries, p.slots, pools, slots);
    dsv4::kernel::write_step_metadata(rows, entries, p.metadata, tables, out);
    if (p.rope_dim > 0) {
        dsv4::kernel::GroupRope rope(rows, rope_cos, rope_sin, p.max_pos, p.rope_dim);
        rope.write<dsv4::kRatioC4>(c4_cos, c4_sin, p.metadata.c4_capacity_groups);
        rope.write<dsv4::kRatioC128>(c128_cos, c128_sin, p.metadata.c128_capacity_groups);
    }
    rows.errors().flush();
}
