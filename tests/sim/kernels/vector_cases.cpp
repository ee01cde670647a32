// Vector instructions that the device performs differently, or not at all, and state that they leave behind.
#include "case.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void vector_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    TBuf<TPosition::VECCALC> bits_buf, wide_buf;
    pipe.InitBuffer(bits_buf, 32);
    pipe.InitBuffer(wide_buf, 2 * kTileBytes);
    LocalTensor<uint8_t> bits = bits_buf.Get<uint8_t>();
    LocalTensor<int32_t> wide = wide_buf.Get<int32_t>();
    LocalTensor<float> real = b.work.ReinterpretCast<float>();
    Load(b.in, b.src, kTile);
    PipeBarrier<PIPE_ALL>();
    Compare(bits, b.in, b.in, fault == 1 ? CMPMODE::LT : CMPMODE::EQ, static_cast<uint32_t>(kTile));
    PipeBarrier<PIPE_V>();
    Compare(bits, b.in, b.in, CMPMODE::EQ, static_cast<uint32_t>(fault == 2 ? kTile / 2 : kTile));
    Cast(real, b.in, RoundMode::CAST_NONE, static_cast<uint32_t>(kTile));
    PipeBarrier<PIPE_V>();
    Cast(b.out, real, fault == 3 ? RoundMode::CAST_NONE : RoundMode::CAST_TRUNC, static_cast<uint32_t>(kTile));
    PipeBarrier<PIPE_V>();
    Muls(real, real, fault == 4 ? 1.0e9f : 1.0f, kTile);
    PipeBarrier<PIPE_V>();
    Cast(b.out, real, RoundMode::CAST_RINT, static_cast<uint32_t>(kTile));
    PipeBarrier<PIPE_V>();
    Adds(wide[fault == 5 ? 8 : 64], fault == 5 ? wide : b.in, 1, kTile);
    PipeBarrier<PIPE_V>();
    DataCopy(wide, b.in, static_cast<uint32_t>(kTile));
    PipeBarrier<PIPE_V>();
    LocalTensor<int64_t> eight = wide.ReinterpretCast<int64_t>();
    Cast(eight, fault == 6 ? wide : b.in, RoundMode::CAST_NONE, static_cast<uint32_t>(kTile));
    PipeBarrier<PIPE_V>();
    ShiftRight(b.out, b.in, fault == 7 ? 33 : 3, kTile);
    PipeBarrier<PIPE_V>();
    Muls(b.out, b.in, fault == 8 ? 0x40000000 : 2, kTile);
    PipeBarrier<PIPE_ALL>();
    CreateVecIndex(b.out, fault == 9 ? 1 << 25 : 0, static_cast<uint32_t>(kTile));
    PipeBarrier<PIPE_ALL>();
    CreateVecIndex(fault == 10 ? b.out_buf.Get<int32_t>(4) : b.out, 0, 4u);
    PipeBarrier<PIPE_ALL>();
    Adds(b.out, b.in, 1, fault == 11 ? 65 : 64, 1, UnaryRepeatParams{1, 1, 8, 8});
    PipeBarrier<PIPE_V>();
    Adds(b.out, b.in, 1, 64, 1, UnaryRepeatParams{1, static_cast<uint16_t>(fault == 12 ? 2 : 1), 8, 8});
    PipeBarrier<PIPE_V>();
    if (fault == 13) {
        SetMaskCount();
    }
    if (fault == 14) {
        SetAtomicAdd<int32_t>();
    }
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst, b.out, kTile);
    if (fault == 15 || fault == 16) {
        Adds(b.out, b.in, 1, fault - 16);
    }
}

extern "C" __global__ __aicore__ void gather_cases(GM_ADDR src, GM_ADDR dst, int32_t fault) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Buffers b(pipe, src, dst);
    TBuf<TPosition::VECCALC> offset_buf;
    pipe.InitBuffer(offset_buf, kTileBytes);
    LocalTensor<int32_t> offset = offset_buf.Get<int32_t>();
    LocalTensor<uint32_t> bytes = offset_buf.Get<uint32_t>();
    Load(b.in, b.src, kTile);
    PipeBarrier<PIPE_ALL>();
    CreateVecIndex(offset, 0, static_cast<uint32_t>(kTile));
    PipeBarrier<PIPE_ALL>();
    // Offsets are in bytes: element numbers are not multiples of 4.
    Muls(offset, offset, fault == 1 ? 1 : 4, kTile);
    PipeBarrier<PIPE_V>();
    if (fault == 2) {
        Adds(offset, offset, 4, kTile);
        PipeBarrier<PIPE_V>();
    }
    Gather(b.out, fault == 3 ? b.out : b.in, bytes, 0u, static_cast<uint32_t>(fault == 4 ? 16384 : kTile));
    PipeBarrier<PIPE_V>();
    uint64_t count = 0;
    GatherMask(b.work, b.in, static_cast<uint8_t>(fault == 5 ? 0 : 1), false, 0u, GatherMaskParams{1, 1, 8, 8}, count);
    PipeBarrier<PIPE_V>();
    GatherMask(b.work, b.in, static_cast<uint8_t>(1), false, 0u,
               GatherMaskParams{1, static_cast<uint16_t>(fault == 6 ? 2 : 1), 8, 8}, count);
    PipeBarrier<PIPE_V>();
    Brcb(b.work, b.in, static_cast<uint8_t>(fault == 7 ? 2 : 1), BrcbRepeatParams{1, 8});
    PipeBarrier<PIPE_V>();
    LocalTensor<half> narrow = b.work.ReinterpretCast<half>();
    LocalTensor<float> real = b.out.ReinterpretCast<float>();
    Duplicate(real, fault == 8 ? 70000.0f : 65504.0f, kTile);
    PipeBarrier<PIPE_V>();
    Cast(narrow, real, RoundMode::CAST_RINT, static_cast<uint32_t>(kTile));
    Edge<HardEvent::V_MTE3>(true);
    Store(b.dst, b.work, 8);
}
