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
                                                                 const std::optional<at::Tensor>& prefix_lens,
                                                                 const std::optional<at::Tensor>& num_draft_tokens,
                                                                 int64_t form, int64_t width) {
    constexpr char kOp[] = "step_sizes";
    check::dim(kOp, "seq_lens", seq_lens, 1);
    check::integer(kOp, "seq_lens", seq_lens);
    check::contiguous(kOp, "seq_lens", seq_lens);
    // The request indices do not matter here: any valid integers of the right shape do.
    const StepInputs inputs{seq_lens, seq_lens, prefix_lens, num_draft_tokens, form, width, kMaxLength, kMaxLength};
    StepRowsParams p = check_step_rows(kOp, inputs, kMaxLength);
    p.max_requests = std::numeric_limits<int64_t>::max();
    const cpu::ScannedStep step = cpu::scan_step(kOp, p, inputs);
    return {step.num_tokens, step.c4_groups, step.c128_groups};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { m.impl("step_sizes", &step_sizes_cpu); }

}  // namespace dsv4
