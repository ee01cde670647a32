// Every edge between two pipes, each of which `fault` can leave out. Fault 0 leaves out none.
#include "case.h"

using namespace AscendC;

// Two tiles through load, add, store with one buffer each. dst = src + 1.
extern "C" __global__ __aicore__ void order_vector(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    for (int32_t tile = 0; tile < 2; ++tile) {
        if (tile > 0) {
            Edge<HardEvent::V_MTE2>(fault != 4);
        }
        Load(b.in, b.src[tile * kTile], kTile);
        Edge<HardEvent::MTE2_V>(fault != 1);
        if (tile > 0) {
            Edge<HardEvent::MTE3_V>(fault != 3);
        }
        Barrier<PIPE_V>(tile > 0);
        Adds(b.work, b.in, 2, kTile);
        Barrier<PIPE_V>(fault != 5);
        Adds(b.out, b.work, -1, kTile);
        Edge<HardEvent::V_MTE3>(fault != 2);
        Store(b.dst[tile * kTile], b.out, kTile);
    }
}

// The scalar unit between load, vector and store. dst[i] = src[i] + src[0] + 1, twice.
extern "C" __global__ __aicore__ void order_scalar(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    for (int32_t tile = 0; tile < 2; ++tile) {
        if (tile > 0) {
            Edge<HardEvent::V_MTE2>(true);
        }
        Load(b.in, b.src[tile * kTile], kTile);
        Edge<HardEvent::MTE2_S>(fault != 1);
        const int32_t first = b.in.GetValue(0);
        Edge<HardEvent::MTE2_V>(fault == 1);
        b.out.SetValue(0, first);
        Barrier<PIPE_V>(true);
        Adds(b.work, b.in, b.out.GetValue(0) + 1, kTile);
        Edge<HardEvent::S_V>(fault != 2);
        Maxs(b.out, b.out, first, 8);
        Edge<HardEvent::V_S>(fault != 3);
        b.out.SetValue(1, b.out.GetValue(0));
        Edge<HardEvent::S_MTE3>(fault != 4);
        Edge<HardEvent::V_MTE3>(true);
        Store(b.dst[tile * kTile], b.work, kTile);
        Store(b.dst[2 * kTile + tile * 8], b.out, 2);
        Edge<HardEvent::MTE3_V>(true);
    }
}

// Buffers that only S and one copy engine touch, used twice. dst[i] = src[i * kTile].
extern "C" __global__ __aicore__ void order_reuse(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    for (int32_t tile = 0; tile < 2; ++tile) {
        Edge<HardEvent::S_MTE2>(tile > 0 && fault != 1);
        Load(b.in, b.src[tile * kTile], 8);
        Edge<HardEvent::MTE2_S>(true);
        const int32_t value = b.in.GetValue(0);
        Edge<HardEvent::MTE3_S>(tile > 0 && fault != 2);
        b.out.SetValue(0, value);
        Edge<HardEvent::S_MTE3>(true);
        Store(b.dst[tile], b.out, 1);
    }
}

// Copies without the vector unit, and copies whose destinations overlap.
extern "C" __global__ __aicore__ void order_copies(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    for (int32_t tile = 0; tile < 2; ++tile) {
        if (tile > 0) {
            Edge<HardEvent::MTE3_MTE2>(fault != 2);
        }
        Load(b.in, b.src[tile * kTile], kTile);
        Edge<HardEvent::MTE2_MTE3>(fault != 1);
        Store(b.dst[tile * kTile], b.in, kTile);
    }
    Load(b.work, b.src, kTile);
    Barrier<PIPE_MTE2>(fault != 3);
    Load(b.work, b.src[kTile], 8);
    Edge<HardEvent::MTE2_MTE3>(true);
    Barrier<PIPE_MTE3>(fault != 4);
    Store(b.dst[kTile], b.work, 8);
    Edge<HardEvent::MTE3_MTE2>(fault != 5);
    Load(b.out, b.dst[kTile], 8);
    Barrier<PIPE_MTE3>(true);
    Edge<HardEvent::MTE2_MTE3>(fault != 6);
    Store(b.dst[kTile + 1], b.work, 8);
}

// Flags: set twice, waited for in vain, left set, out of range, two ids fetched at once.
extern "C" __global__ __aicore__ void flag_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, kTile);
    SetFlag<HardEvent::MTE2_MTE3>(fault == 4 ? 8 : 0);
    if (fault == 1) {
        SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    }
    WaitFlag<HardEvent::MTE2_MTE3>(fault == 2 ? EVENT_ID1 : EVENT_ID0);
    Store(b.dst, b.in, kTile);
    if (fault == 3) {
        SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
    }
    const TEventID one = pipe.AllocEventID<HardEvent::MTE2_V>();
    const TEventID two = fault == 5 ? one : pipe.FetchEventID(HardEvent::MTE2_V);
    SetFlag<HardEvent::MTE2_V>(one);
    SetFlag<HardEvent::MTE2_V>(two);
    WaitFlag<HardEvent::MTE2_V>(one);
    if (fault != 5) {
        WaitFlag<HardEvent::MTE2_V>(two);
    }
    pipe.ReleaseEventID<HardEvent::MTE2_V>(fault == 6 ? TEventID{5} : one);
}

// What the compiler's automatic synchronisation adds reaches further than the two accesses that ask for it: way 0, S reads
// what V made, and the store of it is issued after; way 1, V waits for MTE2 and its result is what S then writes over.
// Fault 1 leaves out the access of S that asks. dst = src + 1, its first element as S left it.
extern "C" __global__ __aicore__ void order_by_compiler(GM_ADDR src, GM_ADDR dst, int32_t way, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, kTile);
    Edge<HardEvent::MTE2_V>(true);
    if (way == 0) {
        Adds(b.out, b.in, 1, kTile);
        if (fault == 0) {
            b.out.GetValue(0);
        }
        Store(b.dst, b.out, kTile);
        return;
    }
    Adds(b.work, b.in, 1, kTile);
    if (fault == 0) {
        b.work.SetValue(0, 7);
    }
    // Over what the vector instruction reads.
    Load(b.in, b.src[kTile], kTile);
    Edge<HardEvent::MTE2_MTE3>(true);
    Store(b.dst, b.in, kTile);
}

// Several scalar reads without a flag between them; another pipe then writes what one of them has read.
extern "C" __global__ __aicore__ void scalar_reads(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, kTile);
    Load(b.out, b.src, kTile);
    Edge<HardEvent::MTE2_S>(true);
    b.out.GetValue(0);
    b.out.GetValue(8);
    b.dst.GetValue(0);
    b.dst.GetValue(16);
    b.out.GetValue(24);
    b.dst.GetValue(32);
    Edge<HardEvent::S_MTE3>(fault != 2);
    Store(b.dst[16], b.in, 8);
    Edge<HardEvent::S_V>(fault != 1);
    Adds(b.out[8], b.out[32], 1, 8);
}

// Copies the first elements.
extern "C" __global__ __aicore__ void write_some(GM_ADDR src, GM_ADDR dst, int32_t elems) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, kTile);
    Edge<HardEvent::MTE2_MTE3>(true);
    if (elems > 0) {
        Store(b.dst, b.in, static_cast<uint32_t>(elems));
    }
}
