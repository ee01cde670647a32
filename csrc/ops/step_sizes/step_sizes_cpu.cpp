#include <ATen/EmptyTensor.h>
#include <c10/core/SymInt.h>
#include <torch/library.h>

#include <utility>

#include "cpu/step_scan.h"

namespace dsv4 {
namespace {

using Sizes = std::tuple<c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, at::Tensor>;

Sizes step_sizes_cpu(const at::Tensor& seq_lens, const std::optional<at::Tensor>& operand, int64_t form,
                     int64_t width) {
    const cpu::ScannedStep step = cpu::scan_host_rows("step_sizes", {seq_lens, operand, std::nullopt, form, width});
    int64_t max_seq_len = 0;
    int64_t max_new_tokens = 0;
    at::Tensor final_lens = at::detail::empty_cpu({seq_lens.size(0)}, at::kInt);
    int32_t* final_len = final_lens.mutable_data_ptr<int32_t>();
    for (const cpu::ScannedRow& row : step.rows) {
        max_seq_len = max_of(max_seq_len, final_length(row));
        max_new_tokens = max_of(max_new_tokens, row.num_new);
        *final_len++ = static_cast<int32_t>(final_length(row));
    }
    return {step.num_tokens, step.groups[0], step.groups[1], max_seq_len, max_new_tokens, std::move(final_lens)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { m.impl("step_sizes", &step_sizes_cpu); }

}  // namespace dsv4
