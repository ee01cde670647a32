#include "device/step_slots.h"
#include "kernel_operator.h"
#include "ops/verify_bundle/verify_bundle_index.h"

// Every block reads the rows and writes an equal share of each output.
extern "C" __global__ __aicore__ void verify_bundle(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                    GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                    GM_ADDR c128_state_table, GM_ADDR requests, GM_ADDR lengths,
                                                    GM_ADDR widths, GM_ADDR out_full_loc, GM_ADDR out_swa_loc,
                                                    GM_ADDR out_c4_loc, GM_ADDR out_c128_loc, GM_ADDR out_c4_state_loc,
                                                    GM_ADDR out_c128_state_loc, GM_ADDR error_lanes,
                                                    VerifyBundleParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    const dsv4::kernel::StepInputAddresses inputs{requests, lengths, widths};
    const dsv4::kernel::PoolAddresses tables{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const dsv4::kernel::PoolAddresses out{
        {out_full_loc, out_swa_loc, out_c4_loc, out_c128_loc, out_c4_state_loc, out_c128_state_loc}};
    dsv4::kernel::StepRows rows(&pipe, inputs, error_lanes, dsv4::kErrorOpVerifyBundle, p.rows,
                                dsv4::kernel::slot_limit(p.rows, p.slots));
    rows.scan();
    dsv4::kernel::StepEntries entries(rows);
    dsv4::kernel::write_step_slots(rows, entries, p.slots, tables, out);
    rows.errors().flush();
}
