// Element-wise vector instructions: the arithmetic of one lane, and the loop over lanes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ascend_sim/lanes.h"

namespace ascend_sim {

// Peak rates per cycle of one vector core, in elements: 256 bytes a cycle for most instructions.
template <class T>
constexpr double FullRate() {
    return 256.0 / (sizeof(T) < 2 ? 2 : sizeof(T));
}

template <class T>
inline constexpr bool kIsHalfWide = std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>;

inline bool SpecialBits(half value) { return (value.bits & 0x7c00u) == 0x7c00u; }
inline bool SpecialBits(bfloat16_t value) { return (value.bits & 0x7f80u) == 0x7f80u; }

// Arithmetic on lanes. `odd` is set when the result needs the reader's attention: wrap-around of integers.
struct AddLane {
    template <class T>
    T operator()(T a, T b, bool& odd) const {
        if constexpr (std::is_integral_v<T>) {
            T sum;
            odd = __builtin_add_overflow(a, b, &sum);
            return sum;
        } else {
            return T(float(a) + float(b));
        }
    }
};
struct SubLane {
    template <class T>
    T operator()(T a, T b, bool& odd) const {
        if constexpr (std::is_integral_v<T>) {
            T difference;
            odd = __builtin_sub_overflow(a, b, &difference);
            return difference;
        } else {
            return T(float(a) - float(b));
        }
    }
};
struct MulLane {
    template <class T>
    T operator()(T a, T b, bool& odd) const {
        if constexpr (std::is_integral_v<T>) {
            T product;
            odd = __builtin_mul_overflow(a, b, &product);
            return product;
        } else {
            return T(float(a) * float(b));
        }
    }
};
struct DivLane {
    template <class T>
    T operator()(T a, T b, bool&) const {
        return T(float(a) / float(b));
    }
};
struct MaxLane {
    template <class T>
    T operator()(T a, T b, bool&) const {
        return a > b ? a : b;
    }
};
struct MinLane {
    template <class T>
    T operator()(T a, T b, bool&) const {
        return a < b ? a : b;
    }
};
struct AndLane {
    template <class T>
    T operator()(T a, T b, bool&) const {
        return static_cast<T>(a & b);
    }
};
struct OrLane {
    template <class T>
    T operator()(T a, T b, bool&) const {
        return static_cast<T>(a | b);
    }
};
struct ShiftLeftLane {
    template <class T>
    T operator()(T a, T bits, bool&) const {
        using U = std::make_unsigned_t<T>;
        return static_cast<uint32_t>(bits) >= sizeof(T) * 8 ? T(0) : static_cast<T>(static_cast<U>(a) << bits);
    }
};
struct ShiftRightLane {
    template <class T>
    T operator()(T a, T bits, bool&) const {
        if (static_cast<uint32_t>(bits) >= sizeof(T) * 8) {
            return a < 0 ? static_cast<T>(-1) : T(0);
        }
        return static_cast<T>(a >> bits);
    }
};

// After the loop: say what the lanes ran into.
template <class T>
void ReportTrouble(const LaneOp& op, const LaneTrouble& trouble, const T* out) {
    if (!trouble.hit()) {
        return;
    }
    if constexpr (std::is_integral_v<T>) {
        Complain(op.call(), Pipe::V, "int.overflow",
                 "lane %u wraps around to %lld; expected a result that fits the type", trouble.lane(),
                 static_cast<long long>(out[trouble.lane()]));
    } else {
        Complain(op.call(), Pipe::V, "half.special",
                 "lane %u is infinite or NaN; a control register decides whether the device keeps it or stores a "
                 "finite value, expected a finite result",
                 trouble.lane());
    }
}

template <class T>
bool NeedsAttention(T value, bool odd) {
    if constexpr (kIsHalfWide<T>) {
        (void)odd;
        return SpecialBits(value) && ReportsSpecialHalf();
    } else {
        (void)value;
        return odd && ReportsOverflow();
    }
}

// out[i] = f(in(i)) over all lanes, with the reports above. `lane` computes one output.
template <class T, class F>
void RunLanes(LaneOp& op, T* out, F lane) {
    LaneTrouble trouble;
    for (uint32_t i = 0; i < op.count(); ++i) {
        bool odd = false;
        const T value = lane(i, odd);
        out[i] = value;
        if (NeedsAttention(value, odd)) {
            trouble.Note(op, i);
        }
    }
    ReportTrouble(op, trouble, out);
    op.Finish();
}

struct Strides3 {
    Stride dst, src0, src1;
};

template <class T, class F>
void BinaryLanes(const char* name, CallSite site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                 const AscendC::LocalTensor<T>& src0, const AscendC::LocalTensor<T>& src1, const Strides3& strides,
                 double rate, F lane) {
    if (lanes.Empty()) {
        return NoteNop(Call{name, site}, Pipe::V);
    }
    LaneOp op(name, site, lanes, sizeof(T));
    const T* a = op.In("src0", src0, strides.src0);
    const T* b = op.In("src1", src1, strides.src1);
    T* out = op.Out("dst", dst, strides.dst);
    op.Issue(rate);
    RunLanes(op, out, [&](uint32_t i, bool& odd) { return lane(a[i], b[i], odd); });
}

template <class T, class F>
void UnaryLanes(const char* name, CallSite site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                const AscendC::LocalTensor<T>& src, Stride dst_stride, Stride src_stride, double rate, F lane) {
    if (lanes.Empty()) {
        return NoteNop(Call{name, site}, Pipe::V);
    }
    LaneOp op(name, site, lanes, sizeof(T));
    const T* a = op.In("src", src, src_stride);
    T* out = op.Out("dst", dst, dst_stride);
    op.Issue(rate);
    RunLanes(op, out, [&](uint32_t i, bool& odd) { return lane(a[i], odd); });
}

}  // namespace ascend_sim
