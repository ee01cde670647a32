// Counting and extending as one call from Python: an engine's Python runs from cold memory, where every call that
// enters torch, and every tensor and number that comes back, costs more than what it does.

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/extend_from_lists/extend_from_lists.h"
#include "torch/check.h"

namespace dsv4 {
namespace {

using Slots = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Extend = Slots(const at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&, const at::Tensor&,
                     const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                     const at::Tensor&, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, std::optional<int64_t>);

// (slots and what is left of the lists, groups of 128, pages of full, swa and c128, new columns flat)
using Extended = std::tuple<std::vector<at::Tensor>, int64_t, int64_t, int64_t, int64_t, std::vector<int64_t>>;

at::Tensor behind(const at::Tensor& pages, int64_t taken) { return taken == 0 ? pages : pages.slice(0, taken); }

Extended count_and_extend(const at::Tensor& req_pool_indices, const std::optional<at::Tensor>& prefix_lens,
                          const at::Tensor& seq_lens, const at::Tensor& last_loc, const at::Tensor& full_pages,
                          const at::Tensor& swa_pages, const at::Tensor& c128_pages, const at::Tensor& full_to_swa,
                          const at::Tensor& c128_table, const at::Tensor& c128_owners,
                          const std::optional<at::Tensor>& host_prefix_lens, const at::Tensor& host_seq_lens,
                          int64_t num_tokens, int64_t page_size, int64_t c128_page_size,
                          std::optional<int64_t> swa_tail) {
    TORCH_CHECK_VALUE(host_seq_lens.is_cpu() && host_prefix_lens.has_value() == prefix_lens.has_value(), kExtendOp,
                      ": expected lengths on the host as on the device");
    auto [total, new_columns] = count_extend(host_prefix_lens, host_seq_lens, page_size, c128_page_size, swa_tail);
    TORCH_CHECK_VALUE(total.tokens == num_tokens, kExtendOp, ": num_tokens is ", num_tokens, ", expected ",
                      total.tokens, ", the sum of the rows");
    TORCH_CHECK_VALUE(req_pool_indices.numel() == host_seq_lens.numel(), kExtendOp, ": ", req_pool_indices.numel(),
                      " rows of req_pool_indices, expected ", host_seq_lens.numel(), " as on the host");
    std::vector<at::Tensor> made;
    if (total.full_pages <= full_pages.numel() && total.swa_pages <= swa_pages.numel() &&
        total.c128_pages <= c128_pages.numel()) {
        static const auto extend =
            c10::Dispatcher::singleton().findSchemaOrThrow("dsv4_npu_ops::extend_from_lists", "").typed<Extend>();
        auto [full, swa, c4, c128, replaced] =
            extend.call(req_pool_indices, prefix_lens, seq_lens, last_loc, full_pages, swa_pages, c128_pages,
                        full_to_swa, c128_table, c128_owners, total.tokens, total.c4, total.c128, total.c128_pages,
                        page_size, c128_page_size, swa_tail);
        made = {std::move(full),
                std::move(swa),
                std::move(c4),
                std::move(c128),
                std::move(replaced),
                behind(full_pages, total.full_pages),
                behind(swa_pages, total.swa_pages),
                behind(c128_pages, total.c128_pages)};
    }
    return {std::move(made), total.c128, total.full_pages, total.swa_pages, total.c128_pages, std::move(new_columns)};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(dsv4_npu_calls, m) {
    m.def(
        "extend_from_lists(Tensor req_pool_indices, Tensor? prefix_lens, Tensor seq_lens, Tensor last_loc,"
        " Tensor full_pages, Tensor swa_pages, Tensor c128_pages, Tensor(a!) full_to_swa, Tensor(b!) c128_table,"
        " Tensor(c!) c128_owners, Tensor? host_prefix_lens, Tensor host_seq_lens, int num_tokens, int page_size,"
        " int c128_page_size, int? swa_tail=None)"
        " -> (Tensor[], int num_c128, int full_pages, int swa_pages, int c128_pages, int[] new_columns)",
        &count_and_extend);
}

// Modes see the op that is called, not how.
TORCH_LIBRARY_IMPL(dsv4_npu_calls, Python, m) { m.impl("extend_from_lists", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(dsv4_npu_calls, PythonTLSSnapshot, m) {
    m.impl("extend_from_lists", torch::CppFunction::makeFallthrough());
}

}  // namespace dsv4
