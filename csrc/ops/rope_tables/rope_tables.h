#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "ops/rope_tables/rope_tables_index.h"

namespace dsv4 {

// Checks every argument of rope_tables.out; touches no data.
RopeTablesParams check_rope_tables(const at::Tensor& freqs_cis, const at::Tensor& cos_out, const at::Tensor& sin_out);

// New tables [max_pos, D] on the device of freqs_cis.
std::tuple<at::Tensor, at::Tensor> empty_rope_tables(const at::Tensor& freqs_cis, at::ScalarType dtype);

}  // namespace dsv4
