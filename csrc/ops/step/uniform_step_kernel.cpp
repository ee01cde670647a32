#include "device/page_rows.h"
#include "device/page_tables.h"
#include "device/preload.h"
#include "device/row_vectors.h"
#include "device/step_scan.h"
#include "device/uniform_groups.h"
#include "device/uniform_tokens.h"
#include "kernel_operator.h"
#include "ops/step/step_index.h"

// What fill_step does, for the steps of a decode or verify over tables of pages (takes_uniform), which most steps are:
// less code, which is in no cache when a launch begins, and less to do for each row.
extern "C" __global__ __aicore__ void fill_uniform_step(GM_ADDR error_lanes, StepAddresses memory, StepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(sizeof(GM_ADDR) + sizeof(StepAddresses) + sizeof(StepParams), 7);
    AscendC::TPipe pipe;
    AscendC::TBuf<AscendC::TPosition::VECCALC> units;
    pipe.InitBuffer(units, dsv4::kernel::UniformGroups::kMostTileLanes * sizeof(int32_t));
    dsv4::kernel::StepRows rows(&pipe, error_lanes, p);
    dsv4::kernel::StepScan<false>(rows, memory).run();
    if (p.other_page_tables != 0) {
        // First, so that these stores, of many bytes, run while the others are made.
        dsv4::kernel::PageTables<true>(rows, memory, rows.lasting_scratch()).write_long_rows();
    }
    if (rows.has_part(dsv4::kStageRows, dsv4::kStageRows)) {
        dsv4::kernel::RowVectors(rows, memory).write();
    }
    if (rows.has_part(dsv4::kStageC4, dsv4::kStageC128)) {
        dsv4::kernel::UniformGroups groups(rows, memory, units.Get<int32_t>());
        groups.write(0);
        groups.write(1);
    }
    if (rows.has_part(dsv4::kStageTokens, dsv4::kStageTokens)) {
        dsv4::kernel::UniformTokens(rows, memory).write();
    }
    if (rows.has_part(dsv4::kStagePages, dsv4::kStagePages)) {
        dsv4::kernel::PageRows(rows, memory).write();
    }
    rows.errors().flush();
}
