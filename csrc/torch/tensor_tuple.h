// Results of ops with many outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

namespace dsv4 {

// std::tuple of `count` tensors, as the dispatcher wants results.
template <size_t count>
using TensorTuple = decltype(std::tuple_cat(std::array<at::Tensor, count>{}));

}  // namespace dsv4
