// Interprets a program of loads, stores, vector and scalar accesses, flags and barriers, for comparison with a model.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr int32_t kBuffers = 3;
constexpr int32_t kElems = 8;

template <HardEvent E>
__aicore__ inline void Raise(bool set, int32_t id) {
    if (set) {
        SetFlag<E>(id);
    } else {
        WaitFlag<E>(id);
    }
}

__aicore__ inline void RaiseAny(int32_t event, bool set, int32_t id) {
    switch (event) {
        case 0:
            return Raise<HardEvent::MTE2_V>(set, id);
        case 1:
            return Raise<HardEvent::V_MTE2>(set, id);
        case 2:
            return Raise<HardEvent::MTE3_V>(set, id);
        case 3:
            return Raise<HardEvent::V_MTE3>(set, id);
        case 4:
            return Raise<HardEvent::MTE2_MTE3>(set, id);
        case 5:
            return Raise<HardEvent::MTE3_MTE2>(set, id);
        case 6:
            return Raise<HardEvent::S_V>(set, id);
        case 7:
            return Raise<HardEvent::V_S>(set, id);
        case 8:
            return Raise<HardEvent::S_MTE2>(set, id);
        case 9:
            return Raise<HardEvent::MTE2_S>(set, id);
        case 10:
            return Raise<HardEvent::S_MTE3>(set, id);
        case 11:
            return Raise<HardEvent::MTE3_S>(set, id);
    }
}

__aicore__ inline void BarrierAny(int32_t pipe) {
    switch (pipe) {
        case 1:
            return PipeBarrier<PIPE_V>();
        case 2:
            return PipeBarrier<PIPE_MTE2>();
        case 3:
            return PipeBarrier<PIPE_MTE3>();
        default:
            return PipeBarrier<PIPE_ALL>();
    }
}

}  // namespace

// program: steps x (operation, a, b), read past the simulator so that reading it orders nothing.
extern "C" __global__ __aicore__ void random_program(GM_ADDR program, GM_ADDR data, GM_ADDR sink, int32_t steps) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    const __gm__ int32_t* step = reinterpret_cast<__gm__ int32_t*>(program);
    TPipe pipe;
    TBuf<TPosition::VECCALC> memory;
    pipe.InitBuffer(memory, kBuffers * 32);
    LocalTensor<int32_t> all = memory.Get<int32_t>();
    GlobalTensor<int32_t> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(data), kElems);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(sink), static_cast<uint64_t>(steps) * kElems);
    Duplicate(all, 1, kBuffers * kElems);
    PipeBarrier<PIPE_ALL>();
    for (int32_t i = 0; i < steps; ++i, step += 3) {
        switch (step[0]) {
            case 0:
                all.GetValue(static_cast<uint32_t>(step[1] * kElems));
                break;
            case 1:
                all.SetValue(static_cast<uint32_t>(step[1] * kElems), i);
                break;
            case 2:
                Adds(all[step[1] * kElems], all[step[2] * kElems], 1, kElems);
                break;
            case 3:
                DataCopy(all[step[1] * kElems], from, static_cast<uint32_t>(kElems));
                break;
            case 4:
                // Every store has a destination of its own: only UB is contended.
                DataCopy(to[i * kElems], all[step[1] * kElems], static_cast<uint32_t>(kElems));
                break;
            case 5:
                RaiseAny(step[1], true, step[2]);
                break;
            case 6:
                RaiseAny(step[1], false, step[2]);
                break;
            default:
                BarrierAny(step[1]);
                break;
        }
    }
}
