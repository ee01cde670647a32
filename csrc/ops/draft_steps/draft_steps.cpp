#include "ops/draft_steps/draft_steps.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/rope_dtype.h"
#include "torch/step_tensors.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "draft_steps";
constexpr int64_t kInt32Max = (int64_t{1} << 31) - 1;

void check_vector(const char* name, const at::Tensor& tensor, const at::Tensor& seq_lens) {
    check::dim(kOp, name, tensor, 1);
    check::same_device(kOp, name, tensor, "seq_lens", seq_lens);
    check::contiguous(kOp, name, tensor);
}

void check_numbers(const DraftStepsInputs& inputs) {
    check::at_least(kOp, "topk", inputs.topk, 1);
    check::at_least(kOp, "num_steps", inputs.num_steps, 1);
    check::at_least(kOp, "max_context_len", inputs.max_context_len, 1);
    TORCH_CHECK_VALUE(inputs.topk <= kInt32Max, kOp, ": topk is ", inputs.topk, ", expected at most ", kInt32Max);
    TORCH_CHECK_VALUE(inputs.max_context_len <= kInt32Max && inputs.num_steps <= kInt32Max - inputs.max_context_len,
                      kOp, ": max_context_len is ", inputs.max_context_len, " and num_steps ", inputs.num_steps,
                      ", expected at most ", kInt32Max, " together");
}

void check_reservation(const DraftStepsInputs& inputs, const DraftStepsParams& p) {
    const at::Tensor& reservation = *inputs.reservation;
    TORCH_CHECK_VALUE(!inputs.table.has_value() && !inputs.req_pool_indices.has_value(), kOp,
                      ": table or req_pool_indices is a tensor, expected None beside a reservation");
    check_vector("reservation", reservation, inputs.seq_lens);
    check::dtype(kOp, "reservation", reservation, {at::kInt});
    TORCH_CHECK_VALUE(p.num_requests == 0 || inputs.topk * inputs.num_steps <= reservation.size(0) / p.num_requests,
                      kOp, ": reservation has ", reservation.size(0), " entries, expected at least ", p.num_requests,
                      " x ", p.topk, " x ", p.num_steps, " (requests, topk, steps)");
}

void check_table(const DraftStepsInputs& inputs, DraftStepsParams& p) {
    TORCH_CHECK_VALUE(inputs.table.has_value() && inputs.req_pool_indices.has_value(), kOp,
                      ": reservation is None, expected a tensor, or a table with req_pool_indices");
    TORCH_CHECK_VALUE(p.topk == 1, kOp, ": topk is ", p.topk, ", expected 1 without a reservation");
    const at::Tensor& requests = *inputs.req_pool_indices;
    check_vector("req_pool_indices", requests, inputs.seq_lens);
    check::integer(kOp, "req_pool_indices", requests);
    check::shape(kOp, "req_pool_indices", requests, {p.num_requests});
    check::dim(kOp, "table", *inputs.table, 2);
    StepRowsParams rows{};
    rows.max_requests = inputs.table->size(0);
    rows.max_context_len = p.max_context_len;
    p.max_requests = rows.max_requests;
    p.table_row_elems = check_request_table(kOp, "table", *inputs.table, 1, rows, requests);
    TORCH_CHECK_VALUE(drafts_from_table(p), kOp, ": table has shape ", inputs.table->sizes(),
                      ", expected that of a pool that exists");
    p.request_is_int64 = requests.scalar_type() == at::kLong;
}

void check_rope(const char* name, const at::Tensor& table, const DraftStepsInputs& inputs) {
    check::dtype(kOp, name, table, {inputs.rope_cos.scalar_type()});
    check::same_device(kOp, name, table, "seq_lens", inputs.seq_lens);
    check::shape(kOp, name, table, inputs.rope_cos.sizes());
    check::contiguous(kOp, name, table);
}

void check_output(const char* name, const at::Tensor& out, at::ScalarType dtype, at::IntArrayRef shape,
                  const at::Tensor& seq_lens) {
    check::dtype(kOp, name, out, {dtype});
    check::same_device(kOp, name, out, "seq_lens", seq_lens);
    check::shape(kOp, name, out, shape);
    check::contiguous(kOp, name, out);
}

}  // namespace

DraftStepsParams check_draft_steps(const DraftStepsInputs& inputs, const DraftStepsOutputs& out) {
    check_numbers(inputs);
    const at::Tensor& lengths = inputs.seq_lens;
    check_vector("seq_lens", lengths, lengths);
    check::integer(kOp, "seq_lens", lengths);
    check::dim(kOp, "slots", out.slots, 2);
    DraftStepsParams p{};
    p.num_requests = lengths.size(0);
    p.num_entries = out.slots.size(1);
    p.max_context_len = inputs.max_context_len;
    p.topk = static_cast<int32_t>(inputs.topk);
    p.num_steps = static_cast<int32_t>(inputs.num_steps);
    p.length_is_int64 = lengths.scalar_type() == at::kLong;
    TORCH_CHECK_VALUE(p.num_requests <= p.num_entries / p.topk, kOp, ": slots has ", p.num_entries,
                      " columns, expected at least ", p.num_requests, " x ", p.topk, " (requests, topk)");
    if (inputs.reservation.has_value()) {
        check_reservation(inputs, p);
    } else {
        check_table(inputs, p);
    }
    check::dim(kOp, "rope_cos", inputs.rope_cos, 2);
    check::rope_dtype(kOp, "rope_cos", inputs.rope_cos);
    TORCH_CHECK_VALUE(inputs.rope_cos.size(0) >= p.max_context_len, kOp, ": rope_cos has ", inputs.rope_cos.size(0),
                      " rows, expected at least ", p.max_context_len, " (max_context_len)");
    check_rope("rope_cos", inputs.rope_cos, inputs);
    check_rope("rope_sin", inputs.rope_sin, inputs);
    p.rope_dim = inputs.rope_cos.size(1);
    p.rope_bytes = static_cast<int32_t>(inputs.rope_cos.element_size());
    const at::ScalarType rope_dtype = inputs.rope_cos.scalar_type();
    check_output("slots", out.slots, at::kInt, {p.num_steps, p.num_entries}, lengths);
    check_output("positions", out.positions, at::kLong, {p.num_steps, p.num_entries}, lengths);
    check_output("kv_lens", out.kv_lens, at::kInt, {p.num_steps, p.num_entries}, lengths);
    check_output("cos", out.cos, rope_dtype, {p.num_steps, p.num_entries, p.rope_dim}, lengths);
    check_output("sin", out.sin, rope_dtype, {p.num_steps, p.num_entries, p.rope_dim}, lengths);
    return p;
}

DraftStepsOutputs empty_draft_steps(const DraftStepsInputs& inputs, int64_t num_entries) {
    check_numbers(inputs);
    check::at_least(kOp, "num_entries", num_entries, 0);
    check::dim(kOp, "rope_cos", inputs.rope_cos, 2);
    const auto int32 = inputs.seq_lens.options().dtype(at::kInt);
    const auto rope = inputs.seq_lens.options().dtype(inputs.rope_cos.scalar_type());
    const int64_t steps = inputs.num_steps;
    const int64_t rope_dim = inputs.rope_cos.size(1);
    return DraftStepsOutputs{at::empty({steps, num_entries}, int32),
                             at::empty({steps, num_entries}, int32.dtype(at::kLong)),
                             at::empty({steps, num_entries}, int32), at::empty({steps, num_entries, rope_dim}, rope),
                             at::empty({steps, num_entries, rope_dim}, rope)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "draft_steps(Tensor seq_lens, Tensor? reservation, Tensor? req_pool_indices, Tensor? table, Tensor rope_cos,"
        " Tensor rope_sin, int topk, int num_steps, SymInt num_entries, int max_context_len)"
        " -> (Tensor slots, Tensor positions, Tensor kv_lens, Tensor cos, Tensor sin)");
    m.def(
        "draft_steps.out(Tensor seq_lens, Tensor? reservation, Tensor? req_pool_indices, Tensor? table,"
        " Tensor rope_cos, Tensor rope_sin, int topk, int num_steps, int max_context_len, *, Tensor(a!) slots,"
        " Tensor(b!) positions, Tensor(c!) kv_lens, Tensor(d!) cos, Tensor(e!) sin) -> ()");
}

}  // namespace dsv4
