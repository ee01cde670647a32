// Argument checks that every backend of an op shares. Each message names the op, the argument, what it was and what was
// expected. Argument errors are ValueError, capacity and state errors RuntimeError, positions past a table IndexError.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

namespace dsv4::check {

inline std::string dtype_names(std::initializer_list<at::ScalarType> dtypes) {
    std::string names;
    for (const at::ScalarType dtype : dtypes) {
        names += (names.empty() ? "" : " or ") + std::string(c10::toString(dtype));
    }
    return names;
}

inline void dtype(const char* op, const char* name, const at::Tensor& tensor,
                  std::initializer_list<at::ScalarType> expected) {
    for (const at::ScalarType candidate : expected) {
        if (tensor.scalar_type() == candidate) {
            return;
        }
    }
    TORCH_CHECK_VALUE(false, op, ": ", name, " has dtype ", c10::toString(tensor.scalar_type()), ", expected ",
                      dtype_names(expected));
}

// What stands for no slot or page in outputs of int32. Kernels also count with its negative.
inline int32_t dummy(const char* op, const char* name, int64_t value) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    TORCH_CHECK_VALUE(value >= -kMost && value <= kMost, op, ": ", name, " is ", value, ", expected ", -kMost, " to ",
                      kMost);
    return static_cast<int32_t>(value);
}

// Row indices, positions and lengths.
inline void integer(const char* op, const char* name, const at::Tensor& tensor) {
    dtype(op, name, tensor, {at::kInt, at::kLong});
}

inline void dim(const char* op, const char* name, const at::Tensor& tensor, int64_t expected) {
    TORCH_CHECK_VALUE(tensor.dim() == expected, op, ": ", name, " has shape ", tensor.sizes(), ", expected ", expected,
                      expected == 1 ? " dimension" : " dimensions");
}

inline void shape(const char* op, const char* name, const at::Tensor& tensor, at::IntArrayRef expected) {
    TORCH_CHECK_VALUE(tensor.sizes() == expected, op, ": ", name, " has shape ", tensor.sizes(), ", expected ",
                      expected);
}

inline void same_device(const char* op, const char* name, const at::Tensor& tensor, const char* reference_name,
                        const at::Tensor& reference) {
    TORCH_CHECK_VALUE(tensor.device() == reference.device(), op, ": ", name, " is on ", tensor.device(), ", expected ",
                      reference.device(), " like ", reference_name);
}

inline void contiguous(const char* op, const char* name, const at::Tensor& tensor) {
    TORCH_CHECK_VALUE(tensor.is_contiguous(), op, ": ", name, " has strides ", tensor.strides(), " for shape ",
                      tensor.sizes(), ", expected a contiguous tensor");
}

// Rows may be strided (a slice of a wider table); the elements of a row may not.
inline void contiguous_rows(const char* op, const char* name, const at::Tensor& matrix) {
    TORCH_CHECK_VALUE(matrix.size(-1) <= 1 || matrix.stride(-1) == 1, op, ": ", name, " has strides ",
                      matrix.strides(), ", expected elements of a row next to each other (last stride 1)");
}

inline void at_least(const char* op, const char* name, int64_t value, int64_t minimum) {
    TORCH_CHECK_VALUE(value >= minimum, op, ": ", name, " is ", value, ", expected at least ", minimum);
}

}  // namespace dsv4::check
