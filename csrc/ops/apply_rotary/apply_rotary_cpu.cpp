#include <ATen/Parallel.h>

#include <type_traits>

#include "cpu/rows_per_thread.h"
#include "ops/apply_rotary/apply_rotary.h"
#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

// Rotated features below which a second thread costs more than it rotates.
constexpr int64_t kFeaturesPerThread = 1 << 17;

// Rotates one head's features x [D] by cos, sin [D]. A feature enters as float32 whatever its type. Products of float32
// are exact in double, so a float64 tensor is rounded once, in the sum; otherwise each product and the sum are float32.
template <typename x_t, typename table_t>
void rotate(x_t* x, const table_t* cos, const table_t* sin, float sign, int64_t rope_dim) {
    using product_t = std::conditional_t<std::is_same_v<x_t, double>, double, float>;
    for (int64_t i = 0; i < rope_dim; i += 2) {
        const product_t real = static_cast<float>(x[i]);
        const product_t imaginary = static_cast<float>(x[i + 1]);
        x[i] = static_cast<x_t>(real * static_cast<float>(cos[i]) - imaginary * (sign * static_cast<float>(sin[i])));
        x[i + 1] = static_cast<x_t>(imaginary * static_cast<float>(cos[i + 1]) +
                                    real * (sign * static_cast<float>(sin[i + 1])));
    }
}

template <typename x_t, typename table_t>
void rotate_all(const at::Tensor& x, const RotaryOperand& operand, const at::Tensor& cos, const at::Tensor& sin,
                const ApplyRotaryParams& p) {
    auto* features = x.mutable_data_ptr<x_t>();
    const auto* cos_rows = cos.const_data_ptr<table_t>();
    const auto* sin_rows = sin.const_data_ptr<table_t>();
    const float sign = p.inverse ? -1.0f : 1.0f;
    const int64_t tokens_per_thread = cpu::rows_per_thread(kFeaturesPerThread, operand.num_heads * p.rope_dim);
    at::parallel_for(0, p.num_tokens, tokens_per_thread, [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) {
            for (int64_t head = 0; head < operand.num_heads; ++head) {
                rotate(features + rotary_offset_elems(token, head, operand, p.rope_dim),
                       cos_rows + token * p.cos_stride, sin_rows + token * p.sin_stride, sign, p.rope_dim);
            }
        }
    });
}

template <typename table_t>
void rotate_operand(const std::optional<at::Tensor>& x, const RotaryOperand& operand, const at::Tensor& cos,
                    const at::Tensor& sin, const ApplyRotaryParams& p) {
    if (!x.has_value()) {
        return;
    }
    if (x->scalar_type() == at::kDouble) {
        return rotate_all<double, table_t>(*x, operand, cos, sin, p);
    }
    visit_rope_dtype(x->scalar_type(),
                     [&](auto feature) { rotate_all<decltype(feature), table_t>(*x, operand, cos, sin, p); });
}

void run(const ApplyRotaryParams& p, const std::optional<at::Tensor>& q, const std::optional<at::Tensor>& kv,
         const at::Tensor& cos, const at::Tensor& sin) {
    visit_rope_dtype(cos.scalar_type(), [&](auto element) {
        rotate_operand<decltype(element)>(q, p.q, cos, sin, p);
        rotate_operand<decltype(element)>(kv, p.kv, cos, sin, p);
    });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_apply_rotary<&run>(m); }

}  // namespace dsv4
