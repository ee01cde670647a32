#include "device/page_rows.h"
#include "device/page_tables.h"
#include "device/preload.h"
#include "device/rope_rows.h"
#include "device/row_slots.h"
#include "device/row_vectors.h"
#include "device/step_entries.h"
#include "device/step_scan.h"
#include "kernel_operator.h"
#include "ops/step/step_index.h"

// Whatever of a step is asked for, in one launch (libc has a function `step`): every block reads the rows once and
// does an equal share of the work.
extern "C" __global__ __aicore__ void fill_step(GM_ADDR error_lanes, StepAddresses memory, StepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(sizeof(GM_ADDR) + sizeof(StepAddresses) + sizeof(StepParams), 0);
    AscendC::TPipe pipe;
    dsv4::kernel::StepRows rows(&pipe, error_lanes, p);
    dsv4::kernel::StepScan<true>(rows, memory).run();
    if (p.other_page_tables != 0) {
        // First, so that these stores, of many bytes, run while the others are made.
        dsv4::kernel::PageTables<false>(rows, memory, rows.lasting_scratch()).write_long_rows();
    }
    if (rows.has_part(dsv4::kStageRows, dsv4::kStageRows)) {
        dsv4::kernel::RowVectors(rows, memory).write();
    }
    if (rows.has_part(dsv4::kStageC4, dsv4::kStageTokens)) {
        dsv4::kernel::StepEntries entries(rows, memory);
        for (int32_t stage = dsv4::kStageC4; stage <= dsv4::kStageTokens; ++stage) {
            entries.write(dsv4::entry_outputs(p, stage));
        }
    }
    if (rows.has_part(dsv4::kStagePages, dsv4::kStagePages)) {
        dsv4::kernel::PageRows(rows, memory).write();
    }
    if (rows.has_part(dsv4::kStageOtherPages, dsv4::kStageStates - 1)) {
        rows.next_stage();
        dsv4::kernel::PageTables<false>(rows, memory, rows.scratch()).write();
    }
    if (rows.has_part(dsv4::kStageStates, dsv4::kStageWindows)) {
        dsv4::kernel::RowSlots row_slots(rows, memory);
        row_slots.states(0);
        row_slots.states(1);
        row_slots.windows();
    }
    for (const int32_t stage : {dsv4::kStageRope, dsv4::kStageRope + 1, dsv4::kStageTokenRope}) {
        if (rows.has_part(stage, stage)) {
            dsv4::kernel::RopeRows(rows, memory).write(stage);
        }
    }
    rows.errors().flush();
}
