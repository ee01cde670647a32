#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <tuple>

#include "ops/rope_tables/rope_tables_index.h"

namespace dsv4 {

// Checks every argument of rope_tables.out; touches no data.
RopeTablesParams check_rope_tables(const at::Tensor& freqs_cis, const at::Tensor& cos_out, const at::Tensor& sin_out);

// New tables [max_pos, D] on the device of freqs_cis.
std::tuple<at::Tensor, at::Tensor> empty_rope_tables(const at::Tensor& freqs_cis, at::ScalarType dtype);

// The two forms over a backend's run(params, freqs_cis, cos_out, sin_out).
template <auto run>
struct RopeTablesForms {
    static void out(const at::Tensor& freqs_cis, const at::Tensor& cos_out, const at::Tensor& sin_out) {
        run(check_rope_tables(freqs_cis, cos_out, sin_out), freqs_cis, cos_out, sin_out);
    }

    static std::tuple<at::Tensor, at::Tensor> functional(const at::Tensor& freqs_cis, at::ScalarType dtype) {
        auto [cos_out, sin_out] = empty_rope_tables(freqs_cis, dtype);
        out(freqs_cis, cos_out, sin_out);
        return {std::move(cos_out), std::move(sin_out)};
    }
};

template <auto run>
void register_rope_tables(torch::Library& library) {
    library.impl("rope_tables", &RopeTablesForms<run>::functional);
    library.impl("rope_tables.out", &RopeTablesForms<run>::out);
}

}  // namespace dsv4
