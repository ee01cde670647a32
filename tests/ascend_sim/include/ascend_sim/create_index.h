// CreateVecIndex and ArithProgression, with the habits of CANN 8.1.
#pragma once

#include <cstdint>
#include <cstring>

#include "ascend_sim/pool.h"
#include "ascend_sim/vector_scalar.h"

namespace ascend_sim {

template <class T>
void FillProgression(const Call& call, const AscendC::LocalTensor<T>& dst, T first, T step, uint32_t count,
                     uint32_t head) {
    // The first block is written by the scalar unit, always whole, by way of float.
    const uint32_t written = head < dst.GetSize() ? head : dst.GetSize();
    if (written < head) {
        Fail(call, Pipe::S, "bounds.ub",
             "writes a whole first block of %u elements; expected a tensor that large, not %u", head, dst.GetSize());
    }
    if constexpr (std::is_same_v<T, int32_t>) {
        const int64_t last = int64_t{first} + int64_t{step} * (head - 1);
        constexpr int64_t kExact = 1 << 24;
        if (first < -kExact || first > kExact || last > kExact) {
            Complain(
                call, Pipe::S, "index.inexact",
                "first value %lld: the first block goes through float and is wrong beyond 2^24; expected a start at "
                "0 and an Adds of the base",
                static_cast<long long>(first));
        }
    }
    for (uint32_t i = 0; i < head; ++i) {
        const T value = static_cast<T>(float(first) + float(step) * float(i));
        const uint32_t address = dst.view().address + i * static_cast<uint32_t>(sizeof(T));
        ScalarUbWrite(call, address, sizeof(T));
        std::memcpy(UbMemory() + address, &value, sizeof(T));
    }
    SetFlag(call, Event::S_V, PeekEventId(call, Event::S_V));
    WaitFlag(call, Event::S_V, PeekEventId(call, Event::S_V));
    if (count <= head) {
        return;
    }
    LaneOp op(call.name, call.site, CountedLanes(call, count, true), sizeof(T));
    const T* in = op.In("first block", dst, {});
    T* out = op.Out("dst", dst, {});
    op.Issue(FullRate<T>());
    MarkUb(dst.view().address, count * static_cast<uint32_t>(sizeof(T)), ByteState::Defined);
    for (uint32_t i = head; i < count; ++i) {
        // The chain of Adds: each block is the one before plus a block's worth of steps.
        const T jump = static_cast<T>(float(step) * float(head));
        out[i] = static_cast<T>(in[i - head] + jump);
    }
    op.Finish();
}

}  // namespace ascend_sim

namespace AscendC {

// In 8.1 at least 32 bytes are written, however small `count` is.
template <class T>
void CreateVecIndex(LocalTensor<T> dst, const T& firstValue, uint32_t count, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "CreateVecIndex: int16_t, int32_t, half, float only");
    const Call call{"CreateVecIndex", site};
    if (count == 0) {
        return ascend_sim::NoteNop(call, ascend_sim::Pipe::V);
    }
    ascend_sim::FillProgression(call, dst, firstValue, T(1), count, 32 / sizeof(T));
}

template <class T>
void ArithProgression(const LocalTensor<T>& dst, const T firstValue, const T diffValue, const int32_t count,
                      CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, int32_t, half, float>,
                  "ArithProgression: int16_t, int32_t, half, float only");
    const Call call{"ArithProgression", site};
    if (!(diffValue > T(0))) {
        ascend_sim::Fail(call, ascend_sim::Pipe::V, "range.step", "diffValue is not positive; expected more than 0");
    }
    if (count <= 0) {
        return ascend_sim::NoteNop(call, ascend_sim::Pipe::V);
    }
    const uint32_t head = 32 / sizeof(T);
    const uint32_t n = static_cast<uint32_t>(count);
    ascend_sim::FillProgression(call, dst, firstValue, diffValue, n, n < head ? n : head);
}

}  // namespace AscendC
