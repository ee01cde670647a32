#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>

#include "ops/apply_rotary/apply_rotary_index.h"

namespace dsv4 {

// Checks every argument of apply_rotary; touches no data.
ApplyRotaryParams check_apply_rotary(const std::optional<at::Tensor>& q, const std::optional<at::Tensor>& kv,
                                     const at::Tensor& cos, const at::Tensor& sin, bool inverse);

// Registers the op over a backend's run(params, q, kv, cos, sin).
template <auto run>
void register_apply_rotary(torch::Library& library) {
    library.impl("apply_rotary", [](const std::optional<at::Tensor>& q, const std::optional<at::Tensor>& kv,
                                    const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
        run(check_apply_rotary(q, kv, cos, sin, inverse), q, kv, cos, sin);
    });
}

}  // namespace dsv4
