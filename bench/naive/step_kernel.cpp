#include "kernel_operator.h"
#include "step_loops.h"

extern "C" __global__ __aicore__ void fill_step(GM_ADDR error_lanes, StepAddresses memory, StepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    dsv4::naive::StepLoops step(&pipe, memory, p);
    const int64_t tokens = p.rows.num_tokens;
    step.row_vectors();
    step.positions<1>(dsv4::kFieldPositions, tokens);
    step.positions<dsv4::kRatioC4>(dsv4::kFieldGroupPositions, p.capacity_groups[0]);
    step.positions<dsv4::kRatioC128>(dsv4::kFieldGroupPositionsC128, p.capacity_groups[1]);
    for (const int32_t pool : {dsv4::kFull, dsv4::kSwa, dsv4::kC4State, dsv4::kC128State}) {
        step.slots<1>(pool, tokens);
    }
    step.slots<dsv4::kRatioC4>(dsv4::kC4, p.capacity_groups[0]);
    step.slots<dsv4::kRatioC128>(dsv4::kC128, p.capacity_groups[1]);
    for (int32_t pool = 0; pool < dsv4::kNumPools; ++pool) {
        step.page_table(pool);
    }
    step.states<dsv4::kRatioC4>();
    step.states<dsv4::kRatioC128>();
    step.windows();
    step.rope_rows<dsv4::kRatioC4>(dsv4::kStageRope);
    step.rope_rows<dsv4::kRatioC128>(dsv4::kStageRope + 1);
    step.rope_rows<1>(dsv4::kStageTokenRope);
}
