#include "ops/apply_rotary/apply_rotary.h"

#include <ATen/MemoryOverlap.h>
#include <torch/library.h>

#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "apply_rotary";

// cos or sin: [T, D] or [T, 1, 1, D].
void check_rows(const char* name, const at::Tensor& rows) {
    TORCH_CHECK_VALUE(rows.dim() == 2 || (rows.dim() == 4 && rows.size(1) == 1 && rows.size(2) == 1), kOp, ": ", name,
                      " has shape ", rows.sizes(), ", expected [T, D] or [T, 1, 1, D]");
    check::rope_dtype(kOp, name, rows);
    check::contiguous_rows(kOp, name, rows);
}

// x: [T, head_dim] or [T, H, head_dim].
RotaryOperand check_operand(const char* name, const at::Tensor& x, const at::Tensor& cos) {
    TORCH_CHECK_VALUE(x.dim() == 2 || x.dim() == 3, kOp, ": ", name, " has shape ", x.sizes(),
                      ", expected [T, head_dim] or [T, H, head_dim]");
    check::dtype(kOp, name, x, {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble});
    check::same_device(kOp, name, x, "cos", cos);
    TORCH_CHECK_VALUE(x.size(0) == cos.size(0), kOp, ": ", name, " has ", x.size(0), " tokens, expected ", cos.size(0),
                      " like cos");
    TORCH_CHECK_VALUE(x.size(-1) >= cos.size(-1), kOp, ": ", name, " has ", x.size(-1),
                      " features a head, expected at least the ", cos.size(-1), " of cos");
    check::contiguous_rows(kOp, name, x);
    TORCH_CHECK_VALUE(at::has_internal_overlap(x) != at::MemOverlap::Yes, kOp, ": ", name, " has strides ", x.strides(),
                      ", expected elements that do not share memory");
    const bool has_heads = x.dim() == 3;
    return RotaryOperand{has_heads ? x.size(1) : 1,      x.size(-1),
                         x.stride(0),                    has_heads ? x.stride(1) : 0,
                         element_type(x.scalar_type()), 0};
}

}  // namespace

ApplyRotaryParams check_apply_rotary(const std::optional<at::Tensor>& q, const std::optional<at::Tensor>& kv,
                                     const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
    check_rows("cos", cos);
    check_rows("sin", sin);
    check::shape(kOp, "sin", sin, cos.sizes());
    check::dtype(kOp, "sin", sin, {cos.scalar_type()});
    check::same_device(kOp, "sin", sin, "cos", cos);
    const int64_t rope_dim = cos.size(-1);
    TORCH_CHECK_VALUE(rope_dim > 0 && rope_dim % 2 == 0, kOp, ": cos has ", rope_dim,
                      " features, expected a positive even number");
    TORCH_CHECK_VALUE(q.has_value() || kv.has_value(), kOp, ": q and kv are both None, expected at least one");
    if (q.has_value() && kv.has_value()) {
        const at::MemOverlapStatus overlap = at::get_overlap_status(*q, *kv);
        TORCH_CHECK_VALUE(overlap != at::MemOverlapStatus::Full && overlap != at::MemOverlapStatus::Partial, kOp,
                          ": kv shares memory with q, expected tensors of their own");
    }
    return ApplyRotaryParams{q.has_value() ? check_operand("q", *q, cos) : RotaryOperand{},
                             kv.has_value() ? check_operand("kv", *kv, cos) : RotaryOperand{},
                             cos.size(0),
                             rope_dim,
                             cos.stride(0),
                             sin.stride(0),
                             inverse,
                             element_type(cos.scalar_type())};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def("apply_rotary(Tensor(a!)? q, Tensor(b!)? kv, Tensor cos, Tensor sin, *, bool inverse=False) -> ()");
}

}  // namespace dsv4
