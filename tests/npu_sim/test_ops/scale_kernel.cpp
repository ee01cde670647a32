// x[i] *= factor over int32 x [n], n <= 1024, in one block. The test ops' real Ascend C kernel.
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void sim_test_scale(GM_ADDR x, int32_t n, int32_t factor) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 1024 * sizeof(int32_t));
    LocalTensor<int32_t> values = buffer.Get<int32_t>();
    GlobalTensor<int32_t> memory;
    memory.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(x), n);
    const DataCopyExtParams extent{1, static_cast<uint32_t>(n) * 4u, 0, 0, 0};
    DataCopyPad(values, memory, extent, DataCopyPadExtParams<int32_t>{false, 0, 0, 0});
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    Muls(values, values, factor, n);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopyPad(memory, values, extent);
}
