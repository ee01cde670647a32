// Writes slots[begin(r) + i] = base + begin(r) + i for row r = block r, begin being the sum of the lengths before it.
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void fill_slots(GM_ADDR lens, GM_ADDR slots, int32_t rows, int32_t base) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    constexpr int32_t kTile = 1024;  // elements
    TPipe pipe;
    TBuf<TPosition::VECCALC> lenBuf, iotaBuf, i32Buf, i64Buf;
    pipe.InitBuffer(lenBuf, 4096);
    pipe.InitBuffer(iotaBuf, kTile * 4);
    pipe.InitBuffer(i32Buf, kTile * 4);
    pipe.InitBuffer(i64Buf, kTile * 8);
    LocalTensor<int32_t> len = lenBuf.Get<int32_t>(), iota = iotaBuf.Get<int32_t>(), v = i32Buf.Get<int32_t>();
    LocalTensor<int64_t> out = i64Buf.Get<int64_t>();
    GlobalTensor<int32_t> gLen;
    gLen.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(lens), rows);
    GlobalTensor<int64_t> gOut;
    gOut.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(slots));
    DataCopyPad(len, gLen, DataCopyExtParams{1, static_cast<uint32_t>(rows) * 4u, 0, 0, 0},
                DataCopyPadExtParams<int32_t>{false, 0, 0, 0});
    SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
    const uint32_t r = static_cast<uint32_t>(GetBlockIdx());
    int32_t begin = 0;
    for (uint32_t i = 0; i < r; ++i) {
        begin += len.GetValue(i);
    }
    const int32_t n = len.GetValue(r);
    CreateVecIndex(iota, 0, static_cast<uint32_t>(kTile));
    for (int32_t done = 0; done < n; done += kTile) {
        const int32_t m = (n - done < kTile) ? (n - done) : kTile;
        PipeBarrier<PIPE_V>();
        Adds(v, iota, base + begin + done, m);
        if (done > 0) {
            SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
            WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
        }
        PipeBarrier<PIPE_V>();
        Cast(out, v, RoundMode::CAST_NONE, static_cast<uint32_t>(m));
        SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
        DataCopyPad(gOut[begin + done], out, DataCopyExtParams{1, static_cast<uint32_t>(m) * 8u, 0, 0, 0});
    }
}
