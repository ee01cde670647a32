// Copies on bytes: the part of DataCopy and DataCopyPad that does not depend on the element type.
#pragma once

#include <cstdint>

#include "ascend_sim/instruction.h"

namespace ascend_sim {

enum class ElementKind : uint8_t { Other, Float, Half, Bfloat16, Int32, Int16, Int8 };
enum class AtomicMode : uint8_t { None = 0, Add, Max, Min };

// Everything in 32-byte blocks; strides are gaps.
struct AlignedCopy {
    int64_t count;
    int64_t length;
    int64_t src_gap;
    int64_t dst_gap;
};

// length in bytes; the gap is in bytes on the global side and in 32-byte blocks on the UB side.
struct PaddedCopy {
    int64_t count;
    int64_t length;
    int64_t src_gap;
    int64_t dst_gap;
    int64_t max_length;
};

struct Padding {
    bool on;
    int64_t left;   // elements
    int64_t right;  // elements
    uint8_t value[8];
};

void CopyIn(const Call& call, const UbView& dst, const GmView& src, uint32_t elem_bytes, const AlignedCopy& copy);
void CopyOut(const Call& call, const GmView& dst, const UbView& src, ElementKind kind, uint32_t elem_bytes,
             const AlignedCopy& copy);
void CopyWithin(const Call& call, const UbView& dst, const UbView& src, uint32_t elem_bytes, const AlignedCopy& copy);
void CopyInPadded(const Call& call, const UbView& dst, const GmView& src, uint32_t elem_bytes, const PaddedCopy& copy,
                  const Padding& padding);
void CopyOutPadded(const Call& call, const GmView& dst, const UbView& src, ElementKind kind, uint32_t elem_bytes,
                   const PaddedCopy& copy);

void SetAtomic(const Call& call, AtomicMode mode, ElementKind kind);

}  // namespace ascend_sim
