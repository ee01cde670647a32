#include "ops/apply_rotary/apply_rotary.h"
#include "torch/launch.h"
#include "torch/rope_dtype.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_apply_rotary.h"

namespace dsv4 {
namespace {

// A vector core has no float64.
void check_device_dtype(const char* name, const std::optional<at::Tensor>& x) {
    if (x.has_value()) {
        check::rope_dtype("apply_rotary", name, *x);
    }
}

void launch_apply_rotary(const ApplyRotaryParams& p, const std::optional<at::Tensor>& q,
                         const std::optional<at::Tensor>& kv, const at::Tensor& cos, const at::Tensor& sin) {
    check_device_dtype("q", q);
    check_device_dtype("kv", kv);
    TORCH_CHECK_VALUE(p.rope_dim <= kRotaryMaxDim, "apply_rotary: cos has ", p.rope_dim, " features, expected at most ",
                      kRotaryMaxDim, " on this device");
    if (p.num_tokens * (p.q.num_heads + p.kv.num_heads) == 0) {
        return;
    }
    // An operand that is not there has no heads and is not read.
    npu::launch_on("apply_rotary", std::array{q.value_or(cos), kv.value_or(cos), cos, sin},
                   apply_rotary_blocks(p, npu::vector_cores(cos)),
                   [p = p](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(apply_rotary)(blocks, stream, at..., &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_apply_rotary<&launch_apply_rotary>(m); }

}  // namespace dsv4
