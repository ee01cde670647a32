// Global memory shared by blocks, the scalar cache, and launches.
#include "case.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void block_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    const uint32_t block = static_cast<uint32_t>(GetBlockIdx());
    Load(b.in, b.src, kTile);
    Edge<HardEvent::MTE2_MTE3>(true);
    Store(b.dst[block * 5], b.in, fault == 1 ? 6 : 5);
    if (fault == 2) {
        Load(b.work, b.dst[(block + 1) % 2 * 5], 5);
    }
    if (fault == 3) {
        SyncAll();
    }
    while (fault == 4) {
        PipeBarrier<PIPE_V>();
    }
}

extern "C" __global__ __aicore__ void cache_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, 8);
    Edge<HardEvent::MTE2_MTE3>(true);
    Store(b.dst, b.in, 8);
    Edge<HardEvent::MTE3_S>(fault != 1);
    if (fault != 2) {
        DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(b.dst);
    }
    b.dst.GetValue(0);
    if (fault == 7) {
        Store(b.dst, b.in, 8);
        b.dst.SetValue(0, 7);
    }
    const bool stores = fault == 3 || fault == 4 || fault == 5 || fault == 6;
    if (stores) {
        b.dst.SetValue(fault == 5 ? 8 : 32 + 16 * static_cast<uint32_t>(GetBlockIdx()), 7);
    }
    if (stores && fault != 4) {
        DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE>(b.dst);
    }
}

struct Range {
    int32_t first;
    uint32_t elems;
};
struct Plan {
    Range range;
    int64_t bias;
};

// dst[range] = src[range] + bias: a nested struct by value.
extern "C" __global__ __aicore__ void struct_argument(GM_ADDR src, Plan plan, GM_ADDR dst) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src[plan.range.first], plan.range.elems);
    Edge<HardEvent::MTE2_V>(true);
    Adds(b.out, b.in, static_cast<int32_t>(plan.bias), static_cast<int32_t>(plan.range.elems));
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst[plan.range.first], b.out, plan.range.elems);
}

// All blocks add into one word.
extern "C" __global__ __aicore__ void atomic_sum(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    Load(b.in, b.src, 8);
    Edge<HardEvent::MTE2_MTE3>(true);
    if (fault != 1) {
        SetAtomicAdd<int32_t>();
    }
    Store(b.dst, b.in, 8);
    SetAtomicNone();
}
