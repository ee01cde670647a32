#include <c10/core/SymInt.h>
#include <torch/library.h>

#include <limits>

#include "cpu/step_scan.h"
#include "torch/check.h"

namespace dsv4 {
namespace {

// Everything that is sized from the results is int32.
constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max();

std::tuple<c10::SymInt, c10::SymInt, c10::SymInt> step_sizes_cpu(const at::Tensor& seq_lens,
                                                                 const std::optional<at::Tensor>& operand,
                                                                 int64_t form, int64_t width) {
    StepTensors tensors;
    StepParams p{};
    p.rows = check_step_rows("step_sizes", {seq_lens, operand, std::nullopt, form, width}, tensors);
    p.rows.num_tokens = kMaxLength;
    p.rows.max_context_len = kMaxLength;
    p.rows.max_seq_len = kMaxLength;
    // Any row will do: requests do not matter here.
    p.rows.max_requests = std::numeric_limits<int64_t>::max();
    const cpu::ScannedStep step = cpu::scan_step("step_sizes", p, tensors);
    return {step.num_tokens, step.groups[0], step.groups[1]};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { m.impl("step_sizes", &step_sizes_cpu); }

}  // namespace dsv4
