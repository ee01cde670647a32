#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "ops/rope_gather/rope_gather_index.h"

namespace dsv4 {

struct RopeGatherTensors {
    const at::Tensor& cos;        // [max_pos, D]
    const at::Tensor& sin;        // [max_pos, D]
    const at::Tensor& positions;  // [T] int32 or int64
    const at::Tensor& cos_out;    // [T, D]
    const at::Tensor& sin_out;    // [T, D]
};

// Checks every argument of rope_gather.out; touches no data.
RopeGatherParams check_rope_gather(const RopeGatherTensors& tensors, bool inverse);

// New outputs for rope_gather, on the tables' device.
std::tuple<at::Tensor, at::Tensor> empty_rope_rows(const at::Tensor& cos, const at::Tensor& positions,
                                                   std::optional<at::ScalarType> dtype);

// The two forms over a backend's run(params, tensors).
template <auto run>
struct RopeGatherForms {
    static void out(const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions, bool inverse,
                    const at::Tensor& cos_out, const at::Tensor& sin_out) {
        const RopeGatherTensors tensors{cos, sin, positions, cos_out, sin_out};
        run(check_rope_gather(tensors, inverse), tensors);
    }

    static std::tuple<at::Tensor, at::Tensor> functional(const at::Tensor& cos, const at::Tensor& sin,
                                                         const at::Tensor& positions, bool inverse,
                                                         std::optional<at::ScalarType> dtype) {
        auto [cos_out, sin_out] = empty_rope_rows(cos, positions, dtype);
        out(cos, sin, positions, inverse, cos_out, sin_out);
        return {std::move(cos_out), std::move(sin_out)};
    }
};

template <auto run>
void register_rope_gather(torch::Library& library) {
    library.impl("rope_gather", &RopeGatherForms<run>::functional);
    library.impl("rope_gather.out", &RopeGatherForms<run>::out);
}

}  // namespace dsv4
