#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/apply_rotary/apply_rotary_index.h"

namespace dsv4 {

// Checks every argument of apply_rotary; touches no data.
ApplyRotaryParams check_apply_rotary(const std::optional<at::Tensor>& q, const std::optional<at::Tensor>& kv,
                                     const at::Tensor& cos, const at::Tensor& sin, bool inverse);

}  // namespace dsv4
