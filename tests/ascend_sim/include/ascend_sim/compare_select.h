// Compare and Select: one bit per element, lowest bit first.
#pragma once

#include <cstdint>

#include "ascend_sim/vector_binary.h"

namespace ascend_sim {

// Bits written by a comparison and read by a selection, as an instruction operand.
void CheckBits(const Call& call, const char* operand, const UbView& view, uint64_t lanes);

template <class T>
bool CompareLane(T a, T b, AscendC::CMPMODE mode) {
    using AscendC::CMPMODE;
    switch (mode) {
        case CMPMODE::LT:
            return a < b;
        case CMPMODE::GT:
            return a > b;
        case CMPMODE::EQ:
            return a == b;
        case CMPMODE::LE:
            return a <= b;
        case CMPMODE::GE:
            return a >= b;
        case CMPMODE::NE:
            return a != b;
    }
    return false;
}

template <class T>
void CheckCompareMode(const Call& call, AscendC::CMPMODE mode) {
    static_assert(kOneOf<T, half, float, int32_t>, "Compare: half, float and (EQ only) int32_t");
    if (std::is_same_v<T, int32_t> && mode != AscendC::CMPMODE::EQ) {
        Fail(call, Pipe::V, "compare.int32",
             "comparison mode %d of int32_t: the device executes EQ instead; expected CMPMODE::EQ",
             static_cast<int>(mode));
    }
}

inline void CheckCompareCount(const Call& call, uint64_t count, uint32_t elem_bytes) {
    if (count * elem_bytes % 256 != 0) {
        Fail(call, Pipe::V, "compare.count",
             "%llu elements are %llu bytes; expected a multiple of 256, the device skips the rest",
             static_cast<unsigned long long>(count), static_cast<unsigned long long>(count * elem_bytes));
    }
}

// bit(i) for every lane, written to dst; sources are registered with the instruction already.
template <class F>
void StoreBits(Instruction& op, const UbView& dst, uint32_t lanes, double rate, F bit, ByteState state) {
    const uint32_t bytes = (lanes + 7) / 8;
    op.WriteUb("dst", dst, Ranges{dst.address, bytes, 1, 0});
    op.Issue(lanes, rate);
    uint8_t* out = UbMemory() + dst.address;
    for (uint32_t byte = 0; byte < bytes; ++byte) {
        uint8_t packed = 0;
        for (uint32_t i = byte * 8; i < byte * 8 + 8 && i < lanes; ++i) {
            packed = static_cast<uint8_t>(packed | (bit(i) ? 1u << (i % 8) : 0u));
        }
        out[byte] = packed;
    }
    MarkUb(dst.address, bytes, state);
}

template <class T>
const T* ReadWhole(Instruction& op, const char* operand, const AscendC::LocalTensor<T>& tensor, uint32_t count,
                   ByteState& worst) {
    const UbView& view = tensor.view();
    const uint32_t bytes = count * static_cast<uint32_t>(sizeof(T));
    op.ReadUb(operand, view, Ranges{view.address, bytes, 1, 0});
    const ByteState state = WorstUb(view.address, bytes);
    worst = state > worst ? state : worst;
    return reinterpret_cast<const T*>(UbMemory() + view.address);
}

// Which bit of the mask decides lane i.
struct SelectBits {
    const uint8_t* bytes;
    uint32_t period;  // lanes after which the bits start over, 0: never

    bool At(uint32_t lane) const {
        const uint32_t bit = period == 0 ? lane : lane % period;
        return (bytes[bit / 8] >> (bit % 8) & 1) != 0;
    }
};

template <class T, class U, class Other>
void SelectLanes(CallSite site, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<U>& mask,
                 const AscendC::LocalTensor<T>& src0, AscendC::SELMODE mode, uint32_t count, Other other) {
    static_assert(kOneOf<T, half, float>, "Select: half and float only");
    static_assert(kOneOf<U, uint8_t, uint16_t, uint32_t, uint64_t>, "Select: the mask is an unsigned tensor");
    if (count == 0) {
        return NoteNop(Call{"Select", site}, Pipe::V);
    }
    const bool shared = mode == AscendC::SELMODE::VSEL_CMPMASK_SPR;
    const uint32_t period = shared ? 256 / static_cast<uint32_t>(sizeof(T)) : 0;
    const uint32_t bits = shared && count > period ? period : count;
    CheckBits(Call{"Select", site}, "mask", mask.view(), bits);
    LaneOp op("Select", site, CountedLanes(Call{"Select", site}, count, true), sizeof(T));
    const T* a = op.In("src0", src0, {});
    const auto b = other(op);
    T* out = op.Out("dst", dst, {});
    op.AlsoRead("mask", mask.view(), (bits + 7) / 8);
    op.Issue(FullRate<T>());
    const SelectBits chosen{UbMemory() + mask.view().address, period};
    for (uint32_t i = 0; i < count; ++i) {
        out[i] = chosen.At(i) ? a[i] : b(i);
    }
    op.Finish();
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, class U>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode,
             uint32_t count, CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<U, uint8_t, int8_t>, "Compare: the result is a tensor of bytes");
    const Call call{"Compare", site};
    ascend_sim::CheckCompareMode<T>(call, mode);
    ascend_sim::CheckCompareCount(call, count, sizeof(T));
    if (count == 0) {
        return ascend_sim::NoteNop(call, ascend_sim::Pipe::V);
    }
    ascend_sim::Instruction op("Compare", site, ascend_sim::Pipe::V);
    auto worst = ascend_sim::ByteState::Defined;
    const T* a = ascend_sim::ReadWhole(op, "src0", src0, count, worst);
    const T* b = ascend_sim::ReadWhole(op, "src1", src1, count, worst);
    ascend_sim::StoreBits(
        op, dst.view(), count, ascend_sim::FullRate<T>(),
        [&](uint32_t i) { return ascend_sim::CompareLane(a[i], b[i], mode); }, worst);
}

template <class T, class U>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T scalar, CMPMODE mode, uint32_t count,
                   CallSite site = CallSite::Here()) {
    static_assert(ascend_sim::kOneOf<U, uint8_t, int8_t>, "CompareScalar: the result is a tensor of bytes");
    const Call call{"CompareScalar", site};
    ascend_sim::CheckCompareMode<T>(call, mode);
    ascend_sim::CheckCompareCount(call, count, sizeof(T));
    if (count == 0) {
        return ascend_sim::NoteNop(call, ascend_sim::Pipe::V);
    }
    ascend_sim::Instruction op("CompareScalar", site, ascend_sim::Pipe::V);
    auto worst = ascend_sim::ByteState::Defined;
    const T* a = ascend_sim::ReadWhole(op, "src0", src0, count, worst);
    ascend_sim::StoreBits(
        op, dst.view(), count, ascend_sim::FullRate<T>(),
        [&](uint32_t i) { return ascend_sim::CompareLane(a[i], scalar, mode); }, worst);
}

#if defined(__NPU_ARCH__) && __NPU_ARCH__ == 3510
// Its name on Atlas A5, and from CANN 9 on.
template <class T, class U>
void Compares(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T scalar, CMPMODE mode, uint32_t count,
              CallSite site = CallSite::Here()) {
    CompareScalar(dst, src0, scalar, mode, count, site);
}
#endif

template <class T, class U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& mask, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE mode, uint32_t count, CallSite site = CallSite::Here()) {
    ascend_sim::SelectLanes(site, dst, mask, src0, mode, count, [&](ascend_sim::LaneOp& op) {
        const T* b = op.In("src1", src1, {});
        return [b](uint32_t i) { return b[i]; };
    });
}
template <class T, class U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& mask, const LocalTensor<T>& src0, T scalar, SELMODE mode,
            uint32_t count, CallSite site = CallSite::Here()) {
    ascend_sim::SelectLanes(site, dst, mask, src0, mode, count,
                            [&](ascend_sim::LaneOp&) { return [scalar](uint32_t) { return scalar; }; });
}

}  // namespace AscendC
