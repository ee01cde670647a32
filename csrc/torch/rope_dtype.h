// The element types of RoPE tables: float32, float16 and bfloat16.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "common/element_type.h"
#include "torch/check.h"

namespace dsv4 {
namespace check {

inline void rope_dtype(const char* op, const char* name, const at::Tensor& tensor) {
    dtype(op, name, tensor, {at::kFloat, at::kHalf, at::kBFloat16});
}

// The `dtype` argument of ops that make new tables or rows.
inline void rope_dtype(const char* op, at::ScalarType dtype) {
    TORCH_CHECK_VALUE(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, op, ": dtype is ",
                      c10::toString(dtype), ", expected ", dtype_names({at::kFloat, at::kHalf, at::kBFloat16}));
}

}  // namespace check

// The name that launch parameters use for `dtype`, which check::rope_dtype has accepted.
inline int32_t element_type(at::ScalarType dtype) {
    return dtype == at::kFloat ? kFloat32 : dtype == at::kHalf ? kFloat16 : kBFloat16;
}

// Calls visit with a value of the C++ type of `dtype`, which check::rope_dtype has accepted.
template <typename Visit>
void visit_rope_dtype(at::ScalarType dtype, Visit&& visit) {
    switch (dtype) {
        case at::kFloat:
            return visit(float{});
        case at::kHalf:
            return visit(c10::Half{});
        default:
            return visit(c10::BFloat16{});
    }
}

}  // namespace dsv4
