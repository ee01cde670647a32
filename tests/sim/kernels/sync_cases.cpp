// Blocks that meet: the one source here with a kernel type that allows it.
#include "case.h"

using namespace AscendC;

// dst[32 + 8 b ..] = what block b + 1 stored into dst[8 (b + 1) ..] before all blocks met.
extern "C" __global__ __aicore__ void sync_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    const uint32_t block = static_cast<uint32_t>(GetBlockIdx());
    const uint32_t blocks = static_cast<uint32_t>(GetBlockNum());
    Load(b.in, b.src[block * 8], 8);
    Edge<HardEvent::MTE2_MTE3>(true);
    Store(b.dst[block * 8], b.in, 8);
    if (fault == 0 || (fault == 1 && block != 2)) {
        SyncAll();
    } else if (fault == 3) {
        SyncAll(b.src, b.work);
    }
    Load(b.out, b.dst[(block + 1) % blocks * 8], 8);
    Edge<HardEvent::MTE2_MTE3>(true);
    Store(b.dst[32 + block * 8], b.out, 8);
    if (fault == 0) {
        SyncAll();
    }
}
