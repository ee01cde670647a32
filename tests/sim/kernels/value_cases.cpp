// Kernels that put an array through one instruction, for comparison with numpy and torch.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t kStep = 1024;  // elements a tile

// dst[i] = f(src[i]) tile by tile.
template <class Dst, class Src, class F>
__aicore__ inline void Map(GM_ADDR src, GM_ADDR dst, int32_t elems, F f) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> in_queue;
    TQue<TPosition::VECOUT, 1> out_queue;
    pipe.InitBuffer(in_queue, 2, kStep * static_cast<uint32_t>(sizeof(Src)));
    pipe.InitBuffer(out_queue, 2, kStep * static_cast<uint32_t>(sizeof(Dst)));
    GlobalTensor<Src> from;
    GlobalTensor<Dst> to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ Src*>(src), static_cast<uint64_t>(elems));
    to.SetGlobalBuffer(reinterpret_cast<__gm__ Dst*>(dst), static_cast<uint64_t>(elems));
    for (uint32_t done = 0; done < static_cast<uint32_t>(elems); done += kStep) {
        const uint32_t left = static_cast<uint32_t>(elems) - done;
        const uint32_t n = left < kStep ? left : kStep;
        LocalTensor<Src> in = in_queue.AllocTensor<Src>();
        DataCopyPad(in, from[done], DataCopyExtParams{1, n * static_cast<uint32_t>(sizeof(Src)), 0, 0, 0},
                    DataCopyPadExtParams<Src>{false, 0, 0, Src(0)});
        in_queue.EnQue(in);
        LocalTensor<Src> ready = in_queue.DeQue<Src>();
        LocalTensor<Dst> out = out_queue.AllocTensor<Dst>();
        f(out, ready, n);
        out_queue.EnQue(out);
        in_queue.FreeTensor(ready);
        LocalTensor<Dst> done_tile = out_queue.DeQue<Dst>();
        DataCopyPad(to[done], done_tile, DataCopyExtParams{1, n * static_cast<uint32_t>(sizeof(Dst)), 0, 0, 0});
        out_queue.FreeTensor(done_tile);
    }
}

template <class Dst, class Src>
__aicore__ inline void MapCast(GM_ADDR src, GM_ADDR dst, int32_t elems, int32_t mode) {
    Map<Dst, Src>(src, dst, elems, [mode](LocalTensor<Dst>& out, LocalTensor<Src>& in, uint32_t n) {
        Cast(out, in, static_cast<RoundMode>(mode), n);
    });
}

}  // namespace

extern "C" __global__ __aicore__ void cast_values(GM_ADDR src, GM_ADDR dst, int32_t elems, int32_t pair, int32_t mode) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    switch (pair) {
        case 0:
            return MapCast<half, float>(src, dst, elems, mode);
        case 1:
            return MapCast<bfloat16_t, float>(src, dst, elems, mode);
        case 2:
            return MapCast<float, half>(src, dst, elems, mode);
        case 3:
            return MapCast<float, bfloat16_t>(src, dst, elems, mode);
        case 4:
            return MapCast<int32_t, float>(src, dst, elems, mode);
        case 5:
            return MapCast<int64_t, float>(src, dst, elems, mode);
        case 6:
            return MapCast<float, int64_t>(src, dst, elems, mode);
        case 7:
            return MapCast<float, int32_t>(src, dst, elems, mode);
        case 8:
            return MapCast<int32_t, int64_t>(src, dst, elems, mode);
        case 9:
            return MapCast<int64_t, int32_t>(src, dst, elems, mode);
        case 10:
            return MapCast<int16_t, int32_t>(src, dst, elems, mode);
    }
}

namespace {

template <class T>
__aicore__ inline void MapScalar(GM_ADDR src, GM_ADDR dst, int32_t elems, int32_t op, T value) {
    Map<T, T>(src, dst, elems, [op, value](LocalTensor<T>& out, LocalTensor<T>& in, uint32_t count) {
        const int32_t n = static_cast<int32_t>(count);
        if constexpr (sizeof(T) == 4 && std::is_integral_v<T>) {
            if (op == 0) {
                return ShiftLeft(out, in, value, n);
            }
            if (op == 1) {
                return ShiftRight(out, in, value, n);
            }
        }
        if constexpr (!std::is_same_v<T, uint32_t>) {
            if (op == 2) {
                return Adds(out, in, value, n);
            }
            if (op == 3) {
                return Muls(out, in, value, n);
            }
            if (op == 4) {
                return Maxs(out, in, value, n);
            }
            Mins(out, in, value, n);
        }
    });
}

}  // namespace

extern "C" __global__ __aicore__ void scalar_values(GM_ADDR src, GM_ADDR dst, int32_t elems, int32_t type, int32_t op,
                                                    float value) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    switch (type) {
        case 0:
            return MapScalar<int32_t>(src, dst, elems, op, static_cast<int32_t>(value));
        case 1:
            return MapScalar<uint32_t>(src, dst, elems, op, static_cast<uint32_t>(value));
        case 2:
            return MapScalar<half>(src, dst, elems, op, half(value));
        case 3:
            return MapScalar<float>(src, dst, elems, op, value);
    }
}

// 8 blocks of dst: what one padded copy leaves in UB, byte by byte (read as defined by a second, unpadded copy out).
extern "C" __global__ __aicore__ void filler_values(GM_ADDR src, GM_ADDR dst, int32_t is_pad, int32_t left,
                                                    int32_t right) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 64);
    LocalTensor<int32_t> values = buffer.Get<int32_t>();
    GlobalTensor<int32_t> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src), 6);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 16);
    DataCopyPad(values, from, DataCopyExtParams{2, 12, 0, 0, 0},
                DataCopyPadExtParams<int32_t>{is_pad != 0, left, right, -9});
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    DataCopy(to, values, 16u);
}

// A strided table read: every 4th of 32 values lands in lane 0 of its own block; Gather makes them dense.
extern "C" __global__ __aicore__ void gather_values(GM_ADDR src, GM_ADDR dst, int32_t way) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> table_buf, offset_buf, out_buf, bits_buf;
    pipe.InitBuffer(table_buf, 256);
    pipe.InitBuffer(offset_buf, 256);
    pipe.InitBuffer(out_buf, 512);
    pipe.InitBuffer(bits_buf, 32);
    LocalTensor<int32_t> table = table_buf.Get<int32_t>(), offset = offset_buf.Get<int32_t>(),
                         out = out_buf.Get<int32_t>();
    LocalTensor<uint32_t> bits = bits_buf.Get<uint32_t>();
    GlobalTensor<int32_t> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src), 64);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 128);
    const DataCopyPadExtParams<int32_t> bare{false, 0, 0, 0};
    uint64_t count = 8;
    if (way == 0 || way == 1) {
        DataCopyPad(table, from, DataCopyExtParams{8, 4, 12, 0, 0}, bare);
        PipeBarrier<PIPE_ALL>();
        if (way == 0) {
            CreateVecIndex(offset, 0, 8u);
            Muls(offset, offset, 32, 8);
            PipeBarrier<PIPE_V>();
            Gather(out, table, offset.ReinterpretCast<uint32_t>(), 0u, 8u);
        } else {
            Duplicate(bits, uint32_t{0x01010101}, 8);
            PipeBarrier<PIPE_V>();
            GatherMask(out, table, bits, false, 0u, GatherMaskParams{1, 1, 8, 1}, count);
        }
    } else {
        DataCopy(table, from, 64u);
        PipeBarrier<PIPE_ALL>();
        if (way < 10) {
            GatherMask(out, table, static_cast<uint8_t>(way - 2), false, 0u, GatherMaskParams{1, 1, 8, 8}, count);
        } else if (way == 10) {
            GatherMask(out, table, static_cast<uint8_t>(1), true, 20u, GatherMaskParams{1, 2, 4, 0}, count);
        } else if (way == 11) {
            Brcb(out, table, static_cast<uint8_t>(1), BrcbRepeatParams{1, 8});
            count = 64;
        } else {
            CreateVecIndex(offset, 0, 8u);
            Muls(offset, offset, -32, 8);
            PipeBarrier<PIPE_V>();
            Adds(offset, offset, 224, 8);
            PipeBarrier<PIPE_V>();
            Gatherb(out.ReinterpretCast<uint32_t>(), table.ReinterpretCast<uint32_t>(),
                    offset.ReinterpretCast<uint32_t>(), static_cast<uint8_t>(1), GatherRepeatParams{1, 8});
            count = 64;
        }
    }
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopyPad(to, out, DataCopyExtParams{1, static_cast<uint32_t>(count) * 4u, 0, 0, 0});
}

// 128 floats: comparison bits, selections and reductions.
extern "C" __global__ __aicore__ void float_values(GM_ADDR src, GM_ADDR dst, GM_ADDR bits_out, int32_t mode,
                                                   float limit) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> in_buf, out_buf, bits_buf, work_buf, sum_buf;
    pipe.InitBuffer(in_buf, 512);
    pipe.InitBuffer(out_buf, 512);
    pipe.InitBuffer(bits_buf, 32);
    pipe.InitBuffer(work_buf, 64);
    pipe.InitBuffer(sum_buf, 256);
    LocalTensor<float> in = in_buf.Get<float>(), out = out_buf.Get<float>(), work = work_buf.Get<float>(),
                       sums = sum_buf.Get<float>();
    LocalTensor<uint8_t> bits = bits_buf.Get<uint8_t>();
    GlobalTensor<float> from, to;
    GlobalTensor<uint8_t> to_bits;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(src), 128);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(dst), 160);
    to_bits.SetGlobalBuffer(bits_out, 16);
    DataCopy(in, from, 128u);
    PipeBarrier<PIPE_ALL>();
    CompareScalar(bits, in, limit, static_cast<CMPMODE>(mode), 128u);
    ReduceSum(sums, in, work, 128);
    PipeBarrier<PIPE_V>();
    ReduceMax(sums[8], in, work, 128, true);
    WholeReduceSum(sums[16], in, 64, 2, 1, 1, 8);
    BlockReduceMax(sums[24], in, 1, 64, 1, 1, 8);
    PairReduceSum(sums[32], in, 1, 8, 1, 1, 8);
    Select(out, bits, in, limit, SELMODE::VSEL_TENSOR_SCALAR_MODE, 128u);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(to, out, 128u);
    DataCopyPad(to[128], sums, DataCopyExtParams{1, 4, 0, 0, 0});
    DataCopyPad(to[129], sums[8], DataCopyExtParams{1, 8, 0, 0, 0});
    DataCopyPad(to[131], sums[16], DataCopyExtParams{1, 8, 0, 0, 0});
    DataCopyPad(to[133], sums[24], DataCopyExtParams{1, 32, 0, 0, 0});
    DataCopyPad(to[141], sums[32], DataCopyExtParams{1, 16, 0, 0, 0});
    DataCopyPad(to_bits, bits, DataCopyExtParams{1, 16, 0, 0, 0});
}

// What CreateVecIndex writes for a small count: 16 values, poisoned with -5 first.
extern "C" __global__ __aicore__ void index_values(GM_ADDR dst, int32_t first, int32_t count) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 64 * 4);
    LocalTensor<int32_t> values = buffer.Get<int32_t>();
    GlobalTensor<int32_t> to;
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 64);
    Duplicate(values, -5, 64);
    PipeBarrier<PIPE_ALL>();
    CreateVecIndex(values, first, static_cast<uint32_t>(count));
    PipeBarrier<PIPE_ALL>();
    DataCopy(to, values, 64u);
}
