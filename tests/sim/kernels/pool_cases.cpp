// TPipe, buffers and queues.
#include "case.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void pool_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    TBuf<TPosition::VECCALC> big, many[65], late;
    // Fault 1: more than a TPipe may have, by what came before; 8: more than there is; 9: all that there is.
    constexpr uint32_t kSmall = 3 * kTileBytes + 3 * 32;
    pipe.InitBuffer(big, fault == 1 ? 188160 : fault == 8 ? 192 * 1024 : fault == 9 ? 192 * 1024 - kSmall : 1024);
    TBuf<TPosition::VECCALC> empty;
    pipe.InitBuffer(empty, fault == 7 ? 0 : 32);
    for (int32_t i = 0; i < (fault == 2 ? 65 : 2); ++i) {
        pipe.InitBuffer(many[i], 32);
    }
    for (int32_t tile = 0; tile < 2; ++tile) {
        if (fault == 3) {
            pipe.InitBuffer(late, 32);
        }
        Load(b.in, b.src, kTile);
        PipeBarrier<PIPE_ALL>();
        Store(b.dst, b.in, kTile);
        PipeBarrier<PIPE_ALL>();
    }
    if (fault == 4) {
        TPipe second;
    }
    if (fault == 5) {
        late.Get<int32_t>();
    }
    pipe.Destroy();
    if (fault == 6) {
        Load(b.in, b.src, kTile);
    }
}

extern "C" __global__ __aicore__ void queue_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> in_queue, other_queue;
    TQue<TPosition::VECOUT, 1> out_queue;
    pipe.InitBuffer(in_queue, 2, kTileBytes);
    pipe.InitBuffer(other_queue, 1, kTileBytes);
    pipe.InitBuffer(out_queue, 1, kTileBytes);
    GlobalTensor<int32_t> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src), 4 * kTile);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 4 * kTile);
    for (int32_t tile = 0; tile < 3; ++tile) {
        LocalTensor<int32_t> in = in_queue.AllocTensor<int32_t>();
        DataCopy(in, from[tile * kTile], static_cast<uint32_t>(kTile));
        if (fault == 3) {
            other_queue.EnQue(in);
        }
        in_queue.EnQue(in);
        if (fault == 6) {
            in_queue.EnQue(in_queue.AllocTensor<int32_t>());
        }
        LocalTensor<int32_t> ready = in_queue.DeQue<int32_t>();
        if (fault == 2) {
            in_queue.DeQue<int32_t>();
        }
        LocalTensor<int32_t> out = out_queue.AllocTensor<int32_t>();
        if (fault == 4) {
            in_queue.FreeTensor(ready);
        }
        Adds(out, ready, 1, kTile);
        if (fault == 5) {
            // The input buffer is filled by MTE2 for V: V's results in it have no edge to MTE3.
            Adds(ready, ready, 1, kTile);
            DataCopy(to[3 * kTile], ready, static_cast<uint32_t>(kTile));
        }
        out_queue.EnQue(out);
        if (fault != 1 && fault != 4) {
            in_queue.FreeTensor(ready);
        }
        LocalTensor<int32_t> done = out_queue.DeQue<int32_t>();
        DataCopy(to[tile * kTile], done, static_cast<uint32_t>(kTile));
        if (!(fault == 7 && tile == 2)) {
            out_queue.FreeTensor(done);
        }
    }
}

// One buffer from MTE2 to MTE3.
extern "C" __global__ __aicore__ void bound_queue(GM_ADDR src, GM_ADDR dst, int32_t tiles) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
    pipe.InitBuffer(queue, 2, kTileBytes);
    GlobalTensor<int32_t> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src), 4 * kTile);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 4 * kTile);
    for (int32_t tile = 0; tile < tiles; ++tile) {
        LocalTensor<int32_t> buffer = queue.AllocTensor<int32_t>();
        DataCopy(buffer, from[tile * kTile], static_cast<uint32_t>(kTile));
        queue.EnQue(buffer);
        LocalTensor<int32_t> ready = queue.DeQue<int32_t>();
        DataCopy(to[tile * kTile], ready, static_cast<uint32_t>(kTile));
        queue.FreeTensor(ready);
    }
}

// The kernel's own flags for the two buffers of a queue, which come in turn: way 0 has one for each and is a right double
// buffer. Way 1 takes the buffer freed last for the one that comes next.
extern "C" __global__ __aicore__ void queue_turns(GM_ADDR src, GM_ADDR dst, int32_t way) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, 2, kTileBytes);
    GlobalTensor<int32_t> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src), 4 * kTile);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 4 * kTile);
    for (int32_t tile = 0; tile < 4; ++tile) {
        const int32_t id = tile % 2;
        LocalTensor<int32_t> buffer = queue.AllocTensor<int32_t>();
        if (way == 0 && tile >= 2) {
            WaitFlag<HardEvent::MTE3_MTE2>(id);
        }
        if (way == 0 || tile == 0) {
            DataCopy(buffer, from[tile * kTile], static_cast<uint32_t>(kTile));
        }
        SetFlag<HardEvent::MTE2_MTE3>(id);
        WaitFlag<HardEvent::MTE2_MTE3>(id);
        if (way == 1) {
            PipeBarrier<PIPE_ALL>();
            buffer.GetValue(0);
        }
        DataCopy(to[tile * kTile], buffer, static_cast<uint32_t>(kTile));
        if (way == 0 && tile < 2) {
            SetFlag<HardEvent::MTE3_MTE2>(id);
        }
        queue.FreeTensor(buffer);
    }
}
