// What kernels of operator projects say otherwise than ours, by the toolkit's other header.
#include "case.h"
#include "kernel_operator_intf.h"
#include "kernel_utils.h"

#if __NPU_ARCH__ != 2201 || __CCE_AICORE__ != 220
#error "another device"
#endif

using namespace AscendC;

static_assert(IsSameType<half, half>::value && !IsSameType<half, float>::value);

struct CaseTiling {
    int32_t elems;
    int32_t bias;
};

// dst = src + bias (key 1) or src - bias (key 2), with flags by pipe. Fault 1: without the flag to V; 2: between pipes that
// no flag joins; 3: a barrier that the device does not have. 4 is none: the flag as an object.
extern "C" __global__ __aicore__ void tiled(GM_ADDR src, GM_ADDR dst, GM_ADDR workspace, GM_ADDR tiling, int32_t fault) {
    REGISTER_TILING_DEFAULT(CaseTiling);
    GET_TILING_DATA(data, tiling);
    GET_TILING_DATA_WITH_STRUCT(CaseTiling, again, tiling);
    GET_TILING_DATA_MEMBER(CaseTiling, bias, bias, tiling);
    KERNEL_TASK_TYPE(1, KERNEL_TYPE_AIV_ONLY);
    KERNEL_TASK_TYPE(2, KERNEL_TYPE_MIX_AIV_1_0);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    if (unlikely(again.elems != data.elems || bias != data.bias || GetUserWorkspace(workspace) != workspace ||
                 get_block_idx() != GetBlockIdx() || get_block_num() != GetBlockNum())) {
        return;
    }
    const uint32_t elems = static_cast<uint32_t>(data.elems);
    Load(b.in, b.src, elems);
    if (fault == 4) {
        TQueSync<PIPE_MTE2, PIPE_V> loaded;
        loaded.SetFlag(EVENT_ID2);
        loaded.WaitFlag(EVENT_ID2);
    } else if (fault != 1) {
        set_flag(fault == 2 ? PIPE_V : PIPE_MTE2, PIPE_V, EVENT_ID3);
        wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID3);
    }
    if (TILING_KEY_IS(1)) {
        Adds(b.out, b.in, data.bias, data.elems);
    } else if (TILING_KEY_IS(2)) {
        Adds(b.out, b.in, -data.bias, data.elems);
    } else {
        return;
    }
    pipe_barrier(fault == 3 ? PIPE_S : PIPE_ALL);
    Store(b.dst, b.out, elems);
    if (TILING_KEY_IS(2)) {
        SyncAll<true>();
    }
}

// Sums of rows of 16, of which the first n count. Way 1 with scratch, 2 with too little of it.
extern "C" __global__ __aicore__ void row_sums(GM_ADDR src, GM_ADDR dst, int32_t n, int32_t way) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, 64);
    Edge<HardEvent::MTE2_V>(true);
    const SumParams params{4, 16, static_cast<uint32_t>(n)};
    const LocalTensor<float> from = b.in.ReinterpretCast<float>();
    const LocalTensor<float> to = b.out.ReinterpretCast<float>();
    if (way == 0) {
        Sum(to, from, params);
    } else {
        LocalTensor<uint8_t> scratch = b.work.ReinterpretCast<uint8_t>();
        scratch.SetSize(way == 1 ? 64 : 16);
        Sum(to, from, scratch, params);
    }
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst, b.out, 4);
}

// dst = half(src * scale), unless fault 1 leaves the factor out.
extern "C" __global__ __aicore__ void scaled_cast(GM_ADDR src, GM_ADDR dst, float scale, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, 16);
    Edge<HardEvent::MTE2_V>(true);
    if (fault != 1) {
        SetDeqScale(static_cast<half>(scale));
    }
    Cast(b.out.ReinterpretCast<half>(), b.in, RoundMode::CAST_NONE, 16u);
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst, b.out, 8);
}

// Writes UB through a pointer, which the simulator cannot see.
extern "C" __global__ __aicore__ void raw_pointer(GM_ADDR src, GM_ADDR dst, int32_t raw) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    for (int32_t i = 0; i < 8; ++i) {
        if (raw == 0) {
            b.out.SetValue(static_cast<uint32_t>(i), i);
        } else {
            *b.out.GetPhyAddr(static_cast<uint32_t>(i)) = i;
        }
    }
    Edge<HardEvent::S_MTE3>(true);
    Store(b.dst, b.out, 8);
}

// What the two profiles judge otherwise: V after V without a barrier, a scalar store, a late InitBuffer, an instruction over
// nothing, an integer that wraps, a tensor that is not freed. Fault 1: a conflict that no compiler mends; 2: a tensor that stays in its queue.
extern "C" __global__ __aicore__ void by_profile(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, kTile);
    Edge<HardEvent::MTE2_V>(fault != 1);
    TBuf<TPosition::VECCALC> late;
    pipe.InitBuffer(late, 32);
    Adds(b.work, b.in, 0x7fffffff, kTile);
    Adds(b.out, b.work, 1, kTile);
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst, b.out, kTile);
    b.dst.SetValue(128, 7);
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, 1, 32);
    LocalTensor<int32_t> kept = queue.AllocTensor<int32_t>();
    if (fault == 2) {
        queue.EnQue(kept);
    }
    Adds(b.out, b.in, 1, 0);
}
