// Bounds, alignment, units and padding of copies and of tensor indices.
#include "case.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void bounds_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    TBuf<TPosition::VECCALC> more;
    pipe.InitBuffer(more, 2 * kTileBytes);
    GlobalTensor<int32_t> unsized;
    unsized.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src));
    Load(b.in, fault == 1 ? unsized[4 * kTile - 8] : b.src, kTile);
    if (fault == 2) {
        unsized.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(0x1000));
        Load(b.work, unsized, 8);
    }
    Edge<HardEvent::MTE2_V>(true);
    // An index in bytes where elements are meant.
    LocalTensor<int32_t> part = b.in[fault == 3 ? 32 * 4 : 32];
    Adds(b.out, fault == 4 ? b.in[1] : part, 1, fault == 5 ? kTile : 32);
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst[fault == 6 ? 4 * kTile - 8 : 0], b.out, 32);
    if (fault == 10) {
        b.dst.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 40);
    }
    PipeBarrier<PIPE_MTE3>();
    if (fault == 11) {
        b.dst.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 40);
        PipeBarrier<PIPE_MTE3>();
        b.dst[41];
    }
    if (fault == 12 || fault == 13) {
        GlobalTensor<int32_t> short_one;
        if (fault == 12) {
            short_one.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src), 40);
        }
        short_one.GetValue(40);
    }
    Store(b.dst[9], b.out, 32);
    Edge<HardEvent::V_S>(true);
    b.out.GetValue(fault == 7 ? kTile : 0);
    more.GetWithOffset<int32_t>(kTile, fault == 8 ? 16 : 32);
    more.Get<int32_t>(fault == 9 ? 2 * kTileBytes : 2 * kTile);
}

extern "C" __global__ __aicore__ void copy_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    const DataCopyPadExtParams<int32_t> bare{false, 0, 0, 0};
    DataCopy(b.in, b.src, static_cast<uint32_t>(fault == 1 ? 20 : 24));
    PipeBarrier<PIPE_MTE2>();
    DataCopyPad(b.in, b.src, DataCopyExtParams{1, fault == 2 ? 2097152 : 32, 0, 0, 0}, bare);
    DataCopyPad(b.work, b.src, DataCopyExtParams{fault == 3 ? 4096 : 2, 8, 0, 0, 0}, bare);
    PipeBarrier<PIPE_MTE2>();
    DataCopyPad(b.work, b.src, DataCopyParams{1, fault == 4 ? 65536 : 32, 0, 0}, DataCopyPadParams{false, 0, 0, 0});
    PipeBarrier<PIPE_MTE2>();
    DataCopyPad(b.work, b.src, DataCopyExtParams{1, fault == 5 ? 30u : 32u, 0, 0, 0}, bare);
    PipeBarrier<PIPE_MTE2>();
    DataCopyPad(b.work, b.src, DataCopyExtParams{1, 12, 0, 0, 0},
                DataCopyPadExtParams<int32_t>{true, fault == 6 ? 9 : 1, 1, 7});
    PipeBarrier<PIPE_MTE2>();
    GlobalTensor<int64_t> wide;
    wide.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(src), 8);
    DataCopyPad(b.work.ReinterpretCast<int64_t>(), wide, DataCopyExtParams{1, 8, 0, 0, 0},
                DataCopyPadExtParams<int64_t>{true, 0, 1, fault == 7 ? 5 : 0});
    PipeBarrier<PIPE_MTE2>();
    // The gap on the UB side is in blocks of 32 bytes: 32 would be a kilobyte.
    DataCopyPad(b.out, b.src, DataCopyExtParams{2, 32, 0, fault == 8 ? 32u : 1u, 0}, bare);
    Edge<HardEvent::MTE2_MTE3>(true);
    DataCopy(b.dst, b.out, DataCopyParams{2, 1, 1, fault == 9 ? 65536 : 1});
}

// Padding lanes, unwritten lanes, and their way to a scalar or to memory.
extern "C" __global__ __aicore__ void padding_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, 5);
    Edge<HardEvent::MTE2_S>(true);
    b.in.GetValue(fault == 1 ? 5 : 4);
    b.in.GetValue(fault == 2 ? 8 : 0);
    // Computing on padding is fine as long as the result goes nowhere.
    Adds(b.out, b.in, 1, 16);
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst, b.out, fault == 3 ? 6 : 5);
    Store(b.dst[8], b.out[fault == 4 ? 8 : 0], 1);
}
