#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "ops/rope_gather/rope_gather_index.h"

namespace dsv4 {

// Checks every argument of rope_gather.out; touches no data.
RopeGatherParams check_rope_gather(const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions,
                                   bool inverse, const at::Tensor& cos_out, const at::Tensor& sin_out);

// New outputs for rope_gather, on the tables' device.
std::tuple<at::Tensor, at::Tensor> empty_rope_rows(const at::Tensor& cos, const at::Tensor& positions,
                                                   std::optional<at::ScalarType> dtype);

}  // namespace dsv4
