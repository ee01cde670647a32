// Calls that the toolkit builds from several instructions: Xor, multiply-add, filling of global memory.
#pragma once

#include <cstdint>

#include "ascend_sim/data_copy.h"
#include "ascend_sim/duplicate.h"
#include "ascend_sim/pool.h"
#include "ascend_sim/sync.h"
#include "ascend_sim/vector_binary.h"
#include "ascend_sim/vector_scalar.h"

namespace ascend_sim {

// UB that the TPipe has not handed out.
UbView UnclaimedUb();
// Whether instructions have run already, as InitBuffer sees it; filling global memory does not count as one.
bool WorkStarted();
void SetWorkStarted(bool started);

}  // namespace ascend_sim

namespace AscendC {

// tmp: scratch of at least count elements.
template <class T>
void Xor(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
         const LocalTensor<uint8_t>& tmp, const uint32_t count, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, int16_t, uint16_t>, "Xor: int16_t and uint16_t only");
    const LocalTensor<T> either = tmp.ReinterpretCast<T>();
    const int32_t n = static_cast<int32_t>(count);
    // (a | b) & ~(a & b), with the barriers that the library call has inside.
    Or(either, src0, src1, n, site);
    And(dst, src0, src1, n, site);
    PipeBarrier<PIPE_V>(site);
    Not(dst, dst, n, site);
    PipeBarrier<PIPE_V>(site);
    And(dst, either, dst, n, site);
}

// dst += src0 * src1, rounded once per step.
template <class T>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,
               CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "MulAddDst: half and float only");
    if (count == 0) {
        return ascend_sim::NoteNop(Call{"MulAddDst", site}, ascend_sim::Pipe::V);
    }
    ascend_sim::LaneOp op("MulAddDst", site, ascend_sim::CountedLanes(Call{"MulAddDst", site}, count, true), sizeof(T));
    const T* a = op.In("src0", src0, {});
    const T* b = op.In("src1", src1, {});
    const T* old = op.In("dst", dst, {});
    T* out = op.Out("dst", dst, {});
    op.Issue(ascend_sim::FullRate<T>());
    ascend_sim::RunLanes(op, out,
                         [&](uint32_t i, bool&) { return T(float(T(float(a[i]) * float(b[i]))) + float(old[i])); });
}

// dst += src * scalar.
template <class T>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,
          CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<T, half, float>, "Axpy: half and float only");
    ascend_sim::BinaryLanes("Axpy", site, ascend_sim::CountedLanes(Call{"Axpy", site}, count, true), dst, src, dst, {},
                            ascend_sim::FullRate<T>(),
                            [&](T a, T old, bool&) { return T(float(T(float(a) * float(scalar))) + float(old)); });
}

// count elements of global memory, by way of UB that no buffer owns. Does not wait for its own copies.
template <class T>
void InitGlobalMemory(GlobalTensor<T>& dst, const uint64_t count, T value, CallSite site = CallSite::Here()) {
    const Call call{"InitGlobalMemory", site};
    const bool started = ascend_sim::WorkStarted();
    ascend_sim::UbView view = ascend_sim::UnclaimedUb();
    const uint64_t room = view.bytes / sizeof(T);
    if (room == 0) {
        ascend_sim::Fail(call, ascend_sim::Pipe::V, "budget.ub",
                         "no UB is left for the fill; expected at least 32 bytes");
    }
    const uint64_t tile = count < room ? count : room;
    Duplicate(LocalTensor<T>(view), value, static_cast<int32_t>(tile), site);
    const int id = ascend_sim::PeekEventId(call, HardEvent::V_MTE3);
    ascend_sim::SetFlag(call, HardEvent::V_MTE3, id);
    ascend_sim::WaitFlag(call, HardEvent::V_MTE3, id);
    for (uint64_t done = 0; done < count; done += tile) {
        const uint64_t n = count - done < tile ? count - done : tile;
        DataCopyPad(dst[done], LocalTensor<T>(view), DataCopyExtParams(1, n * sizeof(T), 0, 0, 0), site);
    }
    ascend_sim::SetWorkStarted(started);
}
template <class T>
void InitOutput(GlobalTensor<T> dst, uint32_t count, T value = T(0), CallSite site = CallSite::Here()) {
    InitGlobalMemory(dst, count, value, site);
}

// dst = a + b and its relatives work on the whole of dst.
template <class T>
void TensorExpression<T>::StoreTo(const LocalTensor<T>& dst) const {
    const int32_t n = static_cast<int32_t>(dst.GetSize());
    const CallSite site{"", 0};
    switch (op) {
        case '+':
            return Add(dst, left, right, n, site);
        case '-':
            return Sub(dst, left, right, n, site);
        case '*':
            return Mul(dst, left, right, n, site);
    }
}

}  // namespace AscendC
