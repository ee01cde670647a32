// The loops whose cycles the toolkit's documents publish (test_time_model.py), over small buffers.
#include "case.h"

using namespace AscendC;

// z = x + y, tile by tile from one buffer; by_scalar: with GetValue and SetValue.
extern "C" __global__ __aicore__ void add_tiles(GM_ADDR x, GM_ADDR z, int32_t tiles, int32_t elems, int32_t by_scalar) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    const uint32_t n = static_cast<uint32_t>(elems);
    pipe.InitBuffer(buffer, 3 * n * sizeof(half));
    const LocalTensor<half> left = buffer.Get<half>(), right = left[n], sum = left[2 * n];
    GlobalTensor<half> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(x), n);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(z) + GetBlockIdx() * n, n);
    for (int32_t tile = 0; tile < tiles; ++tile) {
        if (tile != 0) {
            WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
        }
        DataCopy(left, from, n);
        DataCopy(right, from, n);
        SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
        if (tile != 0) {
            WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
        }
        if (by_scalar != 0) {
            SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
            WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
            for (uint32_t i = 0; i < n; ++i) {
                const float a = left.GetValue(i);
                const float b = right.GetValue(i);
                sum.SetValue(i, static_cast<half>(a + b));
            }
            SetFlag<HardEvent::S_MTE3>(EVENT_ID0);
            WaitFlag<HardEvent::S_MTE3>(EVENT_ID0);
        } else {
            Add(sum, left, right, elems);
        }
        if (tile != tiles - 1) {
            SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
        }
        SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
        DataCopy(to, sum, n);
        if (tile != tiles - 1) {
            SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
        }
        if (by_scalar != 0 && tile != tiles - 1) {
            SetFlag<HardEvent::MTE3_S>(EVENT_ID0);
            WaitFlag<HardEvent::MTE3_S>(EVENT_ID0);
        }
    }
}

// The same tile again and again, each time to another place: rows of row_bytes, gap_bytes apart.
extern "C" __global__ __aicore__ void load_tiles(GM_ADDR x, int32_t tiles, int32_t rows, int32_t row_bytes,
                                                 int32_t gap_bytes) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    const uint32_t row = static_cast<uint32_t>(row_bytes);
    const uint32_t tile_bytes = static_cast<uint32_t>(rows) * ((row + 31) / 32 * 32);
    pipe.InitBuffer(buffer, static_cast<uint32_t>(tiles) * tile_bytes);
    const LocalTensor<half> to = buffer.Get<half>();
    GlobalTensor<half> from;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(x),
                         static_cast<uint64_t>(rows) * (row + static_cast<uint32_t>(gap_bytes)) / sizeof(half));
    for (int32_t tile = 0; tile < tiles; ++tile) {
        DataCopyPad(to[static_cast<uint32_t>(tile) * tile_bytes / sizeof(half)], from,
                    DataCopyExtParams{static_cast<uint16_t>(rows), row, static_cast<uint32_t>(gap_bytes), 0, 0},
                    DataCopyPadExtParams<half>{false, 0, 0, half(0)});
    }
}

// The sum of bytes that lie anywhere in 64 KB, of which each has its cache line; preload: a line is asked for when the
// byte before it has been read.
extern "C" __global__ __aicore__ void sum_scattered(GM_ADDR data, GM_ADDR indices, GM_ADDR result, int32_t count,
                                                    int32_t preload) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, indices, result, 1);
    GlobalTensor<uint8_t> bytes;
    bytes.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(data), 1 << 16);
    GlobalTensor<uint64_t> lines;
    lines.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(data), (1 << 16) / 8);
    GlobalTensor<uint32_t> where;
    where.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t*>(indices), static_cast<uint64_t>(count));
    int32_t total = 0;
    uint32_t next = where.GetValue(0);
    for (int32_t i = 0; i < count; ++i) {
        total += bytes.GetValue(next);
        if (i + 1 < count) {
            next = where.GetValue(static_cast<uint64_t>(i + 1));
            if (preload != 0) {
                DataCachePreload(lines, static_cast<int64_t>(next / 64 * 64));
            }
        }
    }
    b.out.SetValue(0, total);
    Edge<HardEvent::S_MTE3>(true);
    Store(b.dst, b.out, 1);
}

struct ManyNumbers {
    int64_t numbers[61];
};

// 64 numbers of arguments, eight lines of the data cache, of which the first ones are preloaded.
extern "C" __global__ __aicore__ void preload_arguments(GM_ADDR x, ManyNumbers many, int64_t sum, int64_t lines) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GlobalTensor<uint64_t> arguments;
    arguments.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(get_para_base()), 64);
    for (int64_t line = 0; line < lines; ++line) {
        DataCachePreload(arguments, line * 64);
    }
    TPipe pipe;
    Buffers b(pipe, x, x, 8);
    Duplicate(b.out, static_cast<int32_t>(sum + many.numbers[60]), 8);
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst, b.out, 8);
}

// A little code; units of it are preloaded.
extern "C" __global__ __aicore__ void preload_code(GM_ADDR x, int32_t units) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    if (units != 0) {
        ICachePreLoad(units);
    }
    TPipe pipe;
    Buffers b(pipe, x, x, 8);
    Duplicate(b.out, int32_t{1}, 8);
    // Time for the lines to come.
    for (int32_t i = 0; i < 30; ++i) {
        PipeBarrier<PIPE_ALL>();
    }
    for (int32_t i = 0; i < 3; ++i) {
        PipeBarrier<PIPE_V>();
        Adds(b.out, b.out, i, 8);
        PipeBarrier<PIPE_V>();
        Muls(b.out, b.out, i + 1, 8);
    }
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst, b.out, 8);
}
