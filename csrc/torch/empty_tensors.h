// Buffers of a call's results, all at once: from Python each takes longer than a small op.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dsv4 {

// Uninitialised.
at::Tensor empty_tensor(at::ScalarType dtype, at::IntArrayRef sizes, at::Device device);

// Likewise. numbers: of each tensor how many numbers follow, the number of its dtype, and its sizes.
std::vector<at::Tensor> empty_tensors(at::IntArrayRef numbers, at::Device device);

}  // namespace dsv4
