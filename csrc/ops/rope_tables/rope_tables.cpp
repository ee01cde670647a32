#include "ops/rope_tables/rope_tables.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "rope_tables";

void check_freqs(const at::Tensor& freqs_cis) {
    check::dim(kOp, "freqs_cis", freqs_cis, 2);
    check::dtype(kOp, "freqs_cis", freqs_cis, {at::kComplexFloat});
    check::contiguous_rows(kOp, "freqs_cis", freqs_cis);
}

void check_table(const char* name, const at::Tensor& table, const at::Tensor& freqs_cis) {
    check::rope_dtype(kOp, name, table);
    check::same_device(kOp, name, table, "freqs_cis", freqs_cis);
    check::shape(kOp, name, table, {freqs_cis.size(0), 2 * freqs_cis.size(1)});
    check::contiguous(kOp, name, table);
}

}  // namespace

RopeTablesParams check_rope_tables(const at::Tensor& freqs_cis, const at::Tensor& cos_out, const at::Tensor& sin_out) {
    check_freqs(freqs_cis);
    check_table("cos_out", cos_out, freqs_cis);
    check_table("sin_out", sin_out, freqs_cis);
    check::dtype(kOp, "sin_out", sin_out, {cos_out.scalar_type()});
    return RopeTablesParams{freqs_cis.size(0), freqs_cis.stride(0), freqs_cis.size(1),
                            element_type(cos_out.scalar_type()), 0};
}

std::tuple<at::Tensor, at::Tensor> empty_rope_tables(const at::Tensor& freqs_cis, at::ScalarType dtype) {
    check_freqs(freqs_cis);
    check::rope_dtype(kOp, dtype);
    const auto options = freqs_cis.options().dtype(dtype);
    const int64_t rope_dim = 2 * freqs_cis.size(1);
    return {at::empty({freqs_cis.size(0), rope_dim}, options), at::empty({freqs_cis.size(0), rope_dim}, options)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def("rope_tables(Tensor freqs_cis, *, ScalarType dtype) -> (Tensor, Tensor)");
    m.def("rope_tables.out(Tensor freqs_cis, *, Tensor(a!) cos_out, Tensor(b!) sin_out) -> ()");
}

}  // namespace dsv4
