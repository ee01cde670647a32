// Work lists of the allocation ops on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "common/page_segments.h"

namespace dsv4::cpu {

// Calls check(segment, index) for every segment of the list before carry_out(segment) for the first, so that a bad list
// changes nothing. segments: int32 [S, 8].
template <typename Segment, typename Check, typename CarryOut>
void carry_out_segments(const char* op, const at::Tensor& segments, const Check& check, const CarryOut& carry_out) {
    const auto* list = reinterpret_cast<const Segment*>(segments.const_data_ptr<int32_t>());
    const int64_t num_segments = segments.size(0);
    int64_t units_before = 0;
    for (int64_t i = 0; i < num_segments; ++i) {
        TORCH_CHECK_VALUE(list[i].units_before == units_before, op, ": segments[", i, "] says that ",
                          list[i].units_before, " units come before it, expected ", units_before);
        units_before += list[i].end_unit - list[i].begin_unit;
        check(list[i], i);
    }
    for (int64_t i = 0; i < num_segments; ++i) {
        carry_out(list[i]);
    }
}

}  // namespace dsv4::cpu
