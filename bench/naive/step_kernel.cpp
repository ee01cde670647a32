#include "kernel_operator.h"
#include "step_loops.h"

extern "C" __global__ __aicore__ void fill_step(GM_ADDR error_lanes, StepAddresses memory, StepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    dsv4::naive::write_step(memory, p);
}
