// Reductions of half and float: per repeat, per block, per pair, and of a whole tensor. Sums add neighbours first,
// then neighbours of the results, each step rounded to the type.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "ascend_sim/vector_unary.h"

namespace ascend_sim {

enum class ReduceKind : uint8_t { Sum, Max, Min };

template <class T>
T TreeSum(std::vector<T> values) {
    if (values.empty()) {
        return T(0);
    }
    for (size_t n = values.size(); n > 1; n = (n + 1) / 2) {
        for (size_t i = 0; i < n / 2; ++i) {
            values[i] = T(float(values[2 * i]) + float(values[2 * i + 1]));
        }
        if (n % 2 != 0) {
            values[n / 2] = values[n - 1];
        }
    }
    return values[0];
}

// Index of the first extreme value.
template <class T>
size_t ExtremeIndex(const std::vector<T>& values, ReduceKind kind) {
    size_t best = 0;
    for (size_t i = 1; i < values.size(); ++i) {
        const bool better = kind == ReduceKind::Max ? values[i] > values[best] : values[i] < values[best];
        best = better ? i : best;
    }
    return best;
}

template <class T>
T IndexBits(size_t index) {
    T value;
    const uint32_t wide = static_cast<uint32_t>(index);
    std::memcpy(&value, &wide, sizeof(T));
    return value;
}

template <class T>
T Reduced(const std::vector<T>& values, ReduceKind kind) {
    return kind == ReduceKind::Sum ? TreeSum(values) : values[ExtremeIndex(values, kind)];
}

// Gathers active lanes of the source, group by group, and stores what `emit` makes of each group.
// group_lanes: lanes that are reduced together; results: elements per group in dst.
template <class T, class Emit>
void ReduceGroups(const char* name, CallSite site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                  const AscendC::LocalTensor<T>& src, Stride src_stride, uint32_t group_lanes, uint32_t results,
                  uint64_t dst_repeat_elems, double rate, Emit emit) {
    static_assert(kOneOf<T, half, float>, "reductions: the device reduces half and float only");
    if (lanes.Empty()) {
        return NoteNop(Call{name, site}, Pipe::V);
    }
    constexpr uint32_t kPerRepeat = 256 / sizeof(T);
    const Call call{name, site};
    Instruction op(name, site, Pipe::V);
    const uint32_t repeats =
        lanes.counted ? static_cast<uint32_t>((lanes.count + kPerRepeat - 1) / kPerRepeat) : lanes.repeats;
    struct Result {
        uint64_t place;
        std::vector<T> values;
        ByteState state;
    };
    std::vector<Result> found;
    uint64_t seen = 0;
    for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
        for (uint32_t group = 0; group < kPerRepeat / group_lanes; ++group) {
            Result result{
                dst.view().address + (repeat * dst_repeat_elems + group * results) * sizeof(T), {}, ByteState::Defined};
            std::vector<T> values;
            for (uint32_t lane = group * group_lanes; lane < (group + 1) * group_lanes; ++lane) {
                const bool active = lanes.counted ? repeat * kPerRepeat + lane < lanes.count
                                                  : (lanes.mask[lane / 64] >> (lane % 64) & 1) != 0;
                if (!active) {
                    continue;
                }
                const uint32_t per_block = 32 / sizeof(T);
                const uint64_t at = src.view().address +
                                    (repeat * src_stride.repeat + lane / per_block * src_stride.block) * 32 +
                                    lane % per_block * sizeof(T);
                op.ReadUb("src", src.view(), Ranges{at / 32 * 32, static_cast<uint32_t>(at % 32 + sizeof(T)), 1, 0});
                T value;
                std::memcpy(&value, UbMemory() + at, sizeof(T));
                values.push_back(value);
                const ByteState state = WorstUb(static_cast<uint32_t>(at), sizeof(T));
                result.state = state > result.state ? state : result.state;
                ++seen;
            }
            if (values.empty()) {
                continue;
            }
            result.values = emit(values);
            const uint32_t bytes = static_cast<uint32_t>(result.values.size() * sizeof(T));
            const uint64_t block = result.place / 32 * 32;
            op.WriteUb("dst", dst.view(), Ranges{block, static_cast<uint32_t>(result.place - block) + bytes, 1, 0});
            found.push_back(result);
        }
    }
    op.Issue(seen, rate);
    for (const Result& result : found) {
        const uint32_t bytes = static_cast<uint32_t>(result.values.size() * sizeof(T));
        std::memcpy(UbMemory() + result.place, result.values.data(), bytes);
        MarkUb(static_cast<uint32_t>(result.place), bytes, result.state);
        for (const T value : result.values) {
            if (NeedsAttention(value, false) && result.state == ByteState::Defined) {
                Complain(call, Pipe::V, "half.special", "a reduction is infinite or NaN; expected a finite result");
            }
        }
    }
}

// The whole-tensor forms: partial results go to `work`, the result to dst[0] (and its index to dst[1]).
template <class T>
void ReduceTensor(const char* name, CallSite site, ReduceKind kind, const AscendC::LocalTensor<T>& dst,
                  const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work, int32_t count,
                  bool with_index) {
    static_assert(kOneOf<T, half, float>, "reductions: the device reduces half and float only");
    const Call call{name, site};
    CountedLanes(call, count, true);
    if (count == 0) {
        return NoteNop(call, Pipe::V);
    }
    constexpr uint32_t kPerRepeat = 256 / sizeof(T);
    const uint32_t n = static_cast<uint32_t>(count);
    const uint32_t repeats = (n + kPerRepeat - 1) / kPerRepeat;
    Instruction op(name, site, Pipe::V);
    op.ReadUb("src", src.view(), Ranges{src.view().address, n * static_cast<uint32_t>(sizeof(T)), 1, 0});
    const uint32_t work_elems = kind == ReduceKind::Sum ? repeats : repeats * 2;
    op.WriteUb("work", work.view(), Ranges{work.view().address, work_elems * static_cast<uint32_t>(sizeof(T)), 1, 0});
    const uint32_t out_bytes = static_cast<uint32_t>(sizeof(T)) * (with_index ? 2 : 1);
    op.WriteUb("dst", dst.view(), Ranges{dst.view().address, out_bytes, 1, 0});
    op.Issue(n, 9);
    const ByteState state = WorstUb(src.view().address, n * static_cast<uint32_t>(sizeof(T)));
    const T* in = reinterpret_cast<const T*>(UbMemory() + src.view().address);
    T result[2];
    if (kind == ReduceKind::Sum) {
        std::vector<T> partial;
        for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
            const uint32_t end = (repeat + 1) * kPerRepeat < n ? (repeat + 1) * kPerRepeat : n;
            partial.push_back(TreeSum(std::vector<T>(in + repeat * kPerRepeat, in + end)));
        }
        result[0] = TreeSum(partial);
    } else {
        const std::vector<T> values(in, in + n);
        const size_t at = ExtremeIndex(values, kind);
        result[0] = values[at];
        result[1] = IndexBits<T>(at);
    }
    // What is left in `work` is not part of the contract.
    MarkUb(work.view().address, work_elems * static_cast<uint32_t>(sizeof(T)), ByteState::Unwritten);
    std::memcpy(UbMemory() + dst.view().address, result, out_bytes);
    MarkUb(dst.view().address, out_bytes, state);
}

// Rows of `inner` elements, of which the first n are added up; row i gives dst[i].
template <class T>
void SumRows(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint32_t rows,
             uint32_t inner, uint32_t n) {
    static_assert(kOneOf<T, half, float>, "Sum: half and float only");
    constexpr uint32_t kBytes = sizeof(T);
    constexpr uint32_t kPerRepeat = 256 / kBytes;
    if (inner * kBytes % 32 != 0 || n < 1 || n > inner || rows < 1) {
        Fail(call, Pipe::V, "range.field",
             "outter %u, inner %u, n %u; expected rows, inner a multiple of 32 bytes, and 1 <= n <= inner", rows, inner,
             n);
    }
    Instruction op(call.name, call.site, Pipe::V);
    op.ReadUb("src", src.view(), Ranges{src.view().address, n * kBytes, rows, uint64_t{inner} * kBytes});
    op.WriteUb("dst", dst.view(), Ranges{dst.view().address, (rows * kBytes + 31) / 32 * 32, 1, 0});
    op.Issue(uint64_t{rows} * n, 9);
    for (uint32_t row = 0; row < rows; ++row) {
        const uint32_t from = src.view().address + row * inner * kBytes;
        const T* in = reinterpret_cast<const T*>(UbMemory() + from);
        std::vector<T> partial;
        for (uint32_t at = 0; at < n; at += kPerRepeat) {
            partial.push_back(TreeSum(std::vector<T>(in + at, in + (at + kPerRepeat < n ? at + kPerRepeat : n))));
        }
        const T sum = TreeSum(partial);
        std::memcpy(UbMemory() + dst.view().address + row * kBytes, &sum, kBytes);
        MarkUb(dst.view().address + row * kBytes, kBytes, WorstUb(from, n * kBytes));
    }
}

}  // namespace ascend_sim

namespace AscendC {

namespace detail {

template <class T, class Mask>
void WholeReduceExtreme(const char* name, CallSite site, ascend_sim::ReduceKind kind, const LocalTensor<T>& dst,
                        const LocalTensor<T>& src, const Mask& mask, int32_t repeat, int32_t dstRepStride,
                        int32_t srcBlkStride, int32_t srcRepStride, ReduceOrder order, bool set_mask) {
    const Call call{name, site};
    const bool pair = order == ReduceOrder::ORDER_VALUE_INDEX || order == ReduceOrder::ORDER_INDEX_VALUE;
    const uint32_t results = pair ? 2 : 1;
    ascend_sim::ReduceGroups(name, site, LanesOf<T>(call, mask, static_cast<uint32_t>(repeat), set_mask), dst, src,
                             CheckedStride(call, "src", srcBlkStride, srcRepStride), 256 / sizeof(T), results,
                             static_cast<uint64_t>(dstRepStride) * results, 9, [&](const std::vector<T>& values) {
                                 const size_t at = ascend_sim::ExtremeIndex(values, kind);
                                 const T index = ascend_sim::IndexBits<T>(at);
                                 switch (order) {
                                     case ReduceOrder::ORDER_VALUE_INDEX:
                                         return std::vector<T>{values[at], index};
                                     case ReduceOrder::ORDER_INDEX_VALUE:
                                         return std::vector<T>{index, values[at]};
                                     case ReduceOrder::ORDER_ONLY_VALUE:
                                         return std::vector<T>{values[at]};
                                     case ReduceOrder::ORDER_ONLY_INDEX:
                                         break;
                                 }
                                 return std::vector<T>{index};
                             });
}

template <class T, class Mask>
void ReduceParts(const char* name, CallSite site, ascend_sim::ReduceKind kind, const LocalTensor<T>& dst,
                 const LocalTensor<T>& src, const Mask& mask, int32_t repeat, uint64_t dstRepElems,
                 int32_t srcBlkStride, int32_t srcRepStride, uint32_t group, bool set_mask) {
    const Call call{name, site};
    ascend_sim::ReduceGroups(
        name, site, LanesOf<T>(call, mask, static_cast<uint32_t>(repeat), set_mask), dst, src,
        CheckedStride(call, "src", srcBlkStride, srcRepStride), group, 1, dstRepElems, 9,
        [kind](const std::vector<T>& values) { return std::vector<T>{ascend_sim::Reduced(values, kind)}; });
}

}  // namespace detail

template <class T, bool isSetMask = true>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& work, const int32_t count,
               CallSite site = CallSite::Here()) {
    ascend_sim::ReduceTensor("ReduceSum", site, ascend_sim::ReduceKind::Sum, dst, src, work, count, false);
}
template <class T>
void ReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& work, const int32_t count,
               bool calIndex = false, CallSite site = CallSite::Here()) {
    ascend_sim::ReduceTensor("ReduceMax", site, ascend_sim::ReduceKind::Max, dst, src, work, count, calIndex);
}
template <class T>
void ReduceMin(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& work, const int32_t count,
               bool calIndex = false, CallSite site = CallSite::Here()) {
    ascend_sim::ReduceTensor("ReduceMin", site, ascend_sim::ReduceKind::Min, dst, src, work, count, calIndex);
}

// dstRepStride: elements from one repeat's result to the next.
template <class T, bool isSetMask = true, class Mask>
void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask, const int32_t repeat,
                    const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,
                    CallSite site = CallSite::Here()) {
    detail::ReduceParts("WholeReduceSum", site, ascend_sim::ReduceKind::Sum, dst, src, mask, repeat,
                        static_cast<uint64_t>(dstRepStride), srcBlkStride, srcRepStride, 256 / sizeof(T), isSetMask);
}
template <class T, bool isSetMask = true, class Mask>
void WholeReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask, const int32_t repeat,
                    const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,
                    ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, CallSite site = CallSite::Here()) {
    detail::WholeReduceExtreme("WholeReduceMax", site, ascend_sim::ReduceKind::Max, dst, src, mask, repeat,
                               dstRepStride, srcBlkStride, srcRepStride, order, isSetMask);
}
template <class T, bool isSetMask = true, class Mask>
void WholeReduceMin(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Mask& mask, const int32_t repeat,
                    const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,
                    ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, CallSite site = CallSite::Here()) {
    detail::WholeReduceExtreme("WholeReduceMin", site, ascend_sim::ReduceKind::Min, dst, src, mask, repeat,
                               dstRepStride, srcBlkStride, srcRepStride, order, isSetMask);
}

// One result per 32-byte block. dstRepStride: in units of the eight results of a repeat.
template <class T, bool isSetMask = true, class Mask>
void BlockReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeat, const Mask& mask,
                    const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,
                    CallSite site = CallSite::Here()) {
    detail::ReduceParts("BlockReduceSum", site, ascend_sim::ReduceKind::Sum, dst, src, mask, repeat,
                        static_cast<uint64_t>(dstRepStride) * 8, srcBlkStride, srcRepStride, 32 / sizeof(T), isSetMask);
}
template <class T, bool isSetMask = true, class Mask>
void BlockReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeat, const Mask& mask,
                    const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,
                    CallSite site = CallSite::Here()) {
    detail::ReduceParts("BlockReduceMax", site, ascend_sim::ReduceKind::Max, dst, src, mask, repeat,
                        static_cast<uint64_t>(dstRepStride) * 8, srcBlkStride, srcRepStride, 32 / sizeof(T), isSetMask);
}
template <class T, bool isSetMask = true, class Mask>
void BlockReduceMin(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeat, const Mask& mask,
                    const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,
                    CallSite site = CallSite::Here()) {
    detail::ReduceParts("BlockReduceMin", site, ascend_sim::ReduceKind::Min, dst, src, mask, repeat,
                        static_cast<uint64_t>(dstRepStride) * 8, srcBlkStride, srcRepStride, 32 / sizeof(T), isSetMask);
}

// Sums of neighbours. dstRepStride: in units of the 128 bytes that a repeat leaves.
template <class T, bool isSetMask = true, class Mask>
void PairReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeat, const Mask& mask,
                   const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,
                   CallSite site = CallSite::Here()) {
    detail::ReduceParts("PairReduceSum", site, ascend_sim::ReduceKind::Sum, dst, src, mask, repeat,
                        static_cast<uint64_t>(dstRepStride) * (128 / sizeof(T)), srcBlkStride, srcRepStride, 2,
                        isSetMask);
}

struct SumParams {
    uint32_t outter = 1;  // rows
    uint32_t inner = 0;   // elements from row to row
    uint32_t n = 0;       // elements that are added up
};
template <class T>
void Sum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const SumParams& params,
         CallSite site = CallSite::Here()) {
    ascend_sim::SumRows(Call{"Sum", site}, dst, src, params.outter, params.inner, params.n);
}
// tmp: scratch; what it holds afterwards is not part of the contract.
template <class T>
void Sum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& tmp, const SumParams& params,
         CallSite site = CallSite::Here()) {
    const uint32_t partial = ((params.n * sizeof(T) + 255) / 256 * sizeof(T) + 31) / 32 * 32;
    if (tmp.GetLength() < partial) {
        ascend_sim::Fail(Call{"Sum", site}, ascend_sim::Pipe::V, "bounds.ub",
                         "scratch of %u bytes; expected at least %u", tmp.GetLength(), partial);
    }
    Sum(dst, src, params, site);
}

}  // namespace AscendC
