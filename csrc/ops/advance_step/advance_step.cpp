#include "ops/advance_step/advance_step.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/check.h"
#include "torch/step_tensors.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "advance_step";
constexpr int64_t kInt32Max = (int64_t{1} << 31) - 1;

// Returns whether the values are int64.
int32_t check_row_values(const char* name, const at::Tensor& values, const at::Tensor& req_pool_indices) {
    check::dim(kOp, name, values, 1);
    check::integer(kOp, name, values);
    check::same_device(kOp, name, values, "req_pool_indices", req_pool_indices);
    check::shape(kOp, name, values, req_pool_indices.sizes());
    check::contiguous(kOp, name, values);
    return values.scalar_type() == at::kLong;
}

// Where each row's tokens lie, and how many tokens there are.
void check_tokens(const AdvanceInputs& inputs, AdvanceStepParams& p) {
    const at::Tensor& tokens = inputs.token_ids;
    const at::Tensor& requests = inputs.req_pool_indices;
    check::integer(kOp, "token_ids", tokens);
    check::same_device(kOp, "token_ids", tokens, "req_pool_indices", requests);
    check::contiguous(kOp, "token_ids", tokens);
    check::at_least(kOp, "width", inputs.width, 0);
    p.num_tokens = tokens.numel();
    p.token_is_int64 = tokens.scalar_type() == at::kLong;
    TORCH_CHECK_VALUE(p.num_tokens <= kInt32Max, kOp, ": token_ids has ", p.num_tokens, " entries, expected at most ",
                      kInt32Max);
    if (tokens.dim() == 2) {
        check::shape(kOp, "token_ids", tokens, {p.num_rows, inputs.width});
    } else {
        check::dim(kOp, "token_ids", tokens, 1);
    }
    if (inputs.cu_seqlens.has_value()) {
        const at::Tensor& cu_seqlens = *inputs.cu_seqlens;
        check_step_output(kOp, "cu_seqlens", cu_seqlens, at::kInt, {p.num_rows + 1}, requests);
        p.has_cu_seqlens = 1;
        return;
    }
    p.width = inputs.width;
    TORCH_CHECK_VALUE(p.num_rows == 0 || p.width <= p.num_tokens / p.num_rows, kOp, ": token_ids has ", p.num_tokens,
                      " entries, expected at least ", p.width, " for each of ", p.num_rows, " rows");
}

void check_hidden(const AdvanceInputs& inputs, const AdvanceOutputs& out, AdvanceStepParams& p) {
    TORCH_CHECK_VALUE(inputs.hidden_states.has_value() == out.next_hidden.has_value(), kOp, ": next_hidden is ",
                      out.next_hidden.has_value() ? "a tensor" : "None", ", expected ",
                      inputs.hidden_states.has_value() ? "a tensor" : "None", " like hidden_states");
    if (!inputs.hidden_states.has_value()) {
        return;
    }
    const at::Tensor& hidden = *inputs.hidden_states;
    check::dtype(kOp, "hidden_states", hidden, {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble});
    check::same_device(kOp, "hidden_states", hidden, "req_pool_indices", inputs.req_pool_indices);
    TORCH_CHECK_VALUE(hidden.dim() >= 2 && hidden.size(0) == p.num_tokens, kOp, ": hidden_states has shape ",
                      hidden.sizes(), ", expected [", p.num_tokens, ", ..], a row for each token");
    check::contiguous(kOp, "hidden_states", hidden);
    c10::DimVector shape(hidden.sizes());
    shape[0] = p.num_rows;
    check_step_output(kOp, "next_hidden", *out.next_hidden, hidden.scalar_type(), shape, inputs.req_pool_indices);
    p.hidden_row_halves = c10::multiply_integers(hidden.sizes().slice(1)) * hidden.element_size() / 2;
}

// Returns whether the new lengths take the place of the old ones; a part of them may not.
int32_t check_next_lengths(const at::Tensor& seq_lens, const at::Tensor& next) {
    const at::MemOverlapStatus overlap = at::get_overlap_status(next, seq_lens);
    TORCH_CHECK_VALUE(overlap == at::MemOverlapStatus::No || overlap == at::MemOverlapStatus::Full, kOp,
                      ": next_seq_lens overlaps seq_lens in part, expected the same tensor or another one");
    return overlap == at::MemOverlapStatus::Full;
}

}  // namespace

AdvanceStepParams check_advance_step(const AdvanceInputs& inputs, const AdvanceOutputs& out) {
    const at::Tensor& requests = inputs.req_pool_indices;
    AdvanceStepParams p{};
    p.request_is_int64 = check_row_values("req_pool_indices", requests, requests);
    p.length_is_int64 = check_row_values("seq_lens", inputs.seq_lens, requests);
    p.accepted_is_int64 = check_row_values("accepted_lens", inputs.accepted_lens, requests);
    p.num_rows = requests.size(0);
    check::at_least(kOp, "max_context_len", inputs.max_context_len, 1);
    TORCH_CHECK_VALUE(inputs.max_context_len <= kInt32Max, kOp, ": max_context_len is ", inputs.max_context_len,
                      ", expected at most ", kInt32Max);
    p.max_context_len = inputs.max_context_len;
    check_tokens(inputs, p);
    check::dim(kOp, "full_table", inputs.full_table, 2);
    p.max_requests = inputs.full_table.size(0);
    StepRowsParams rows{};
    rows.max_requests = p.max_requests;
    rows.max_context_len = p.max_context_len;
    p.full_row_elems = check_request_table(kOp, "full_table", inputs.full_table, 1, rows, requests);
    p.swa_row_elems = check_request_table(kOp, "swa_table", inputs.swa_table, 1, rows, requests);
    const auto check_rows = [&](const char* name, const at::Tensor& tensor, at::ScalarType dtype, bool exists = true) {
        check_step_output(kOp, name, tensor, dtype, {exists ? p.num_rows : 0}, requests);
    };
    check_rows("next_seq_lens", out.next_seq_lens, inputs.seq_lens.scalar_type());
    p.in_place = check_next_lengths(inputs.seq_lens, out.next_seq_lens);
    check_rows("extend_lens", out.extend_lens, at::kInt);
    check_rows("next_token_ids", out.next_token_ids, inputs.token_ids.scalar_type());
    check_rows("positions", out.positions, at::kLong);
    check_rows("out_full_loc", out.out_full_loc, at::kInt, pool_exists(p.full_row_elems));
    check_rows("out_swa_loc", out.out_swa_loc, at::kInt, pool_exists(p.swa_row_elems));
    check_rows("sampled_index", out.sampled_index, at::kLong);
    check_hidden(inputs, out, p);
    return p;
}

AdvanceOutputs empty_advance_outputs(const AdvanceInputs& inputs) {
    check::dim(kOp, "req_pool_indices", inputs.req_pool_indices, 1);
    check::dim(kOp, "full_table", inputs.full_table, 2);
    check::dim(kOp, "swa_table", inputs.swa_table, 2);
    const int64_t rows = inputs.req_pool_indices.size(0);
    const auto options = inputs.req_pool_indices.options();
    const auto vector = [&](at::ScalarType dtype, bool exists = true) {
        return at::empty({exists ? rows : 0}, options.dtype(dtype));
    };
    std::optional<at::Tensor> hidden;
    if (inputs.hidden_states.has_value()) {
        TORCH_CHECK_VALUE(inputs.hidden_states->dim() >= 2, kOp, ": hidden_states has shape ",
                          inputs.hidden_states->sizes(), ", expected a row for each token");
        c10::DimVector shape(inputs.hidden_states->sizes());
        shape[0] = rows;
        hidden = at::empty(shape, options.dtype(inputs.hidden_states->scalar_type()));
    }
    return AdvanceOutputs{vector(inputs.seq_lens.scalar_type()),
                          vector(at::kInt),
                          vector(inputs.token_ids.scalar_type()),
                          vector(at::kLong),
                          vector(at::kInt, inputs.full_table.size(1) != 0),
                          vector(at::kInt, inputs.swa_table.size(1) != 0),
                          vector(at::kLong),
                          std::move(hidden)};
}

AdvanceResults advance_results(const AdvanceInputs& inputs, AdvanceOutputs&& out) {
    at::Tensor hidden = out.next_hidden.has_value() ? std::move(*out.next_hidden)
                                                    : at::empty({0}, inputs.req_pool_indices.options().dtype(at::kFloat));
    return {std::move(out.next_seq_lens), std::move(out.extend_lens),  std::move(out.next_token_ids),
            std::move(out.positions),     std::move(out.out_full_loc), std::move(out.out_swa_loc),
            std::move(out.sampled_index), std::move(hidden)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "advance_step(Tensor full_table, Tensor swa_table, Tensor req_pool_indices, Tensor seq_lens,"
        " Tensor accepted_lens, Tensor token_ids, Tensor? cu_seqlens, Tensor? hidden_states, int width,"
        " int max_context_len) -> (Tensor next_seq_lens, Tensor extend_lens, Tensor next_token_ids, Tensor positions,"
        " Tensor out_full_loc, Tensor out_swa_loc, Tensor sampled_index, Tensor next_hidden)");
    m.def(
        "advance_step.out(Tensor full_table, Tensor swa_table, Tensor req_pool_indices, Tensor seq_lens,"
        " Tensor accepted_lens, Tensor token_ids, Tensor? cu_seqlens, Tensor? hidden_states, int width,"
        " int max_context_len, *, Tensor(a!) next_seq_lens, Tensor(b!) extend_lens, Tensor(c!) next_token_ids,"
        " Tensor(d!) positions, Tensor(e!) out_full_loc, Tensor(f!) out_swa_loc, Tensor(g!) sampled_index,"
        " Tensor(h!)? next_hidden=None) -> ()");
}

}  // namespace dsv4
