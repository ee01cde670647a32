// Less common forms of instructions: masks, strides, inherited masks, composites, atomics, scalar helpers.
#include "case.h"

using namespace AscendC;

// 128 int32 in src; each `way` writes its result to dst.
extern "C" __global__ __aicore__ void integer_forms(GM_ADDR src, GM_ADDR dst, int32_t way) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> in_buf, out_buf, tmp_buf;
    pipe.InitBuffer(in_buf, 512);
    pipe.InitBuffer(out_buf, 512);
    pipe.InitBuffer(tmp_buf, 512);
    LocalTensor<int32_t> in = in_buf.Get<int32_t>(), out = out_buf.Get<int32_t>();
    GlobalTensor<int32_t> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src), 128);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 128);
    DataCopy(in, from, 128u);
    PipeBarrier<PIPE_ALL>();
    Duplicate(out, -1, 128);
    PipeBarrier<PIPE_ALL>();
    switch (way) {
        case 0:  // the first 10 lanes of both repeats
            Adds(out, in, 1000, 10, 2, UnaryRepeatParams{1, 1, 8, 8});
            break;
        case 1: {  // odd lanes; source blocks of one repeat taken every second block
            uint64_t mask[2] = {0x00000000aaaaaaaaULL, 0};
            Add(out, in, in, mask, 1, BinaryRepeatParams{1, 2, 1, 8, 8, 8});
            break;
        }
        case 2:  // 70 elements by a counter that the caller sets
            SetMaskCount();
            SetVectorMask<int32_t, MaskMode::COUNTER>(0, 70);
            Muls<int32_t, false>(out, in, 3, MASK_PLACEHOLDER, 1, UnaryRepeatParams{1, 1, 8, 8});
            SetMaskNorm();
            ResetMask();
            break;
        case 3:
            Xor(out.ReinterpretCast<uint16_t>(), in.ReinterpretCast<uint16_t>(), in[64].ReinterpretCast<uint16_t>(),
                tmp_buf.Get<uint8_t>(), 128u);
            break;
        case 4:
            out = in + in;
            break;
        case 5:
            ArithProgression(out, 5, 3, 100);
            break;
        case 6:  // every block of the source twice
            Copy(out, in, 8, 16, CopyRepeatParams{1, 1, 1, 0});
            break;
        case 7: {  // UB to UB with gaps
            DataCopy(out, in, DataCopyParams{4, 1, 1, 2});
            break;
        }
        case 8:
            Relu(out, in, 128);
            break;
        case 9:
            Max(out, in, in[64], 64);
            PipeBarrier<PIPE_V>();
            Min(out, out, in, 64);
            break;
    }
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    SetFlag<HardEvent::S_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::S_MTE3>(EVENT_ID0);
    DataCopy(to, out, 128u);
}

// dst += src * 0.1 and dst += src * src on floats; 64 elements.
extern "C" __global__ __aicore__ void float_forms(GM_ADDR src, GM_ADDR dst, int32_t way) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    LocalTensor<float> in = b.in.ReinterpretCast<float>(), out = b.out.ReinterpretCast<float>();
    Load(b.in, b.src, kTile);
    Load(b.out, b.dst, kTile);
    PipeBarrier<PIPE_ALL>();
    if (way == 0) {
        Axpy(out, in, 0.1f, kTile);
    } else if (way == 1) {
        MulAddDst(out, in, in, kTile);
    } else {
        Div(out, out, in, kTile);
    }
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst, b.out, kTile);
}

// Every block combines its copy of src with dst.
extern "C" __global__ __aicore__ void atomic_forms(GM_ADDR src, GM_ADDR dst, int32_t way) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    GlobalTensor<float> to;
    to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(dst), 8);
    Load(b.in, b.src[8 * static_cast<uint32_t>(GetBlockIdx())], 8);
    Edge<HardEvent::MTE2_MTE3>(true);
    if (way == 0) {
        SetAtomicMax<float>();
    } else if (way == 1) {
        SetAtomicMin<float>();
    } else {
        SetAtomicAdd<float>();
    }
    Store(to, b.in.ReinterpretCast<float>(), 8);
    SetAtomicNone();
}

// Fills global memory twice. Fault 1: nothing orders the second fill of the scratch after the copies of the first.
extern "C" __global__ __aicore__ void fill_memory(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    GlobalTensor<int32_t> first, second;
    first.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 100);
    second.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst) + 100, 100);
    InitGlobalMemory(first, 100, 7);
    Edge<HardEvent::MTE3_V>(fault != 1);
    InitOutput(second, 50, 9);
    Buffers b(pipe, src, dst);
}

// Scalar conversions and bit counts, one result an element.
extern "C" __global__ __aicore__ void scalar_helpers(GM_ADDR dst, float value, uint64_t bits) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 64);
    LocalTensor<int32_t> out = buffer.Get<int32_t>();
    GlobalTensor<int32_t> to;
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), 16);
    out(0) = ScalarCast<float, int32_t, RoundMode::CAST_RINT>(value);
    out(1) = ScalarCast<float, int32_t, RoundMode::CAST_FLOOR>(value);
    out(2) = ScalarGetCountOfValue<1>(bits);
    out(3) = ScalarGetCountOfValue<0>(bits);
    out(4) = ScalarCountLeadingZero(bits);
    out(5) = ScalarGetSFFValue<1>(bits);
    out(6) = ScalarGetSFFValue<0>(bits);
    out(7) = static_cast<int32_t>(AlignUp(33, 32)) + static_cast<int32_t>(DivCeil(33, 32));
    out(8) = static_cast<int32_t>(ToFloat(ToBfloat16(value)) * 1000);
    out(9) = static_cast<int32_t>(static_cast<float>(static_cast<half>(value)) * 1000);
    Edge<HardEvent::S_MTE3>(true);
    DataCopyPad(to, out, DataCopyExtParams{1, 40, 0, 0, 0});
}
