#include "ops/rope_gather/rope_gather.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "rope_gather";

void check_output(const char* name, const at::Tensor& out, const at::Tensor& cos, int64_t num_positions) {
    check::rope_dtype(kOp, name, out);
    check::same_device(kOp, name, out, "cos", cos);
    check::shape(kOp, name, out, {num_positions, cos.size(1)});
    check::contiguous(kOp, name, out);
}

}  // namespace

RopeGatherParams check_rope_gather(const RopeGatherTensors& tensors, bool inverse) {
    const auto& [cos, sin, positions, cos_out, sin_out] = tensors;
    check::dim(kOp, "cos", cos, 2);
    check::rope_dtype(kOp, "cos", cos);
    check::contiguous(kOp, "cos", cos);
    check::dtype(kOp, "sin", sin, {cos.scalar_type()});
    check::same_device(kOp, "sin", sin, "cos", cos);
    check::shape(kOp, "sin", sin, cos.sizes());
    check::contiguous(kOp, "sin", sin);
    check::dim(kOp, "positions", positions, 1);
    check::integer(kOp, "positions", positions);
    check::same_device(kOp, "positions", positions, "cos", cos);
    check::contiguous(kOp, "positions", positions);
    check_output("cos_out", cos_out, cos, positions.size(0));
    check_output("sin_out", sin_out, cos, positions.size(0));
    check::dtype(kOp, "sin_out", sin_out, {cos_out.scalar_type()});
    return RopeGatherParams{cos.size(0),
                            positions.size(0),
                            cos.size(1),
                            static_cast<int32_t>(cos.size(1)),
                            positions.scalar_type() == at::kLong,
                            inverse,
                            element_type(cos.scalar_type()),
                            element_type(cos_out.scalar_type()),
                            0};
}

std::tuple<at::Tensor, at::Tensor> empty_rope_rows(const at::Tensor& cos, const at::Tensor& positions,
                                                   std::optional<at::ScalarType> dtype) {
    check::dim(kOp, "cos", cos, 2);
    check::dim(kOp, "positions", positions, 1);
    if (dtype.has_value()) {
        check::rope_dtype(kOp, *dtype);
    }
    const auto options = cos.options().dtype(dtype.value_or(cos.scalar_type()));
    return {at::empty({positions.size(0), cos.size(1)}, options), at::empty({positions.size(0), cos.size(1)}, options)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "rope_gather(Tensor cos, Tensor sin, Tensor positions, *, bool inverse=False, ScalarType? dtype=None)"
        " -> (Tensor, Tensor)");
    m.def(
        "rope_gather.out(Tensor cos, Tensor sin, Tensor positions, *, bool inverse=False,"
        " Tensor(a!) cos_out, Tensor(b!) sin_out) -> ()");
}

}  // namespace dsv4
