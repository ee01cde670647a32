#include "ops/draft_steps/draft_steps.h"

#include <algorithm>

#include "torch/check.h"
#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "draft_steps";
constexpr int64_t kInt32Max = (int64_t{1} << 31) - 1;

void check_vector(const char* name, const at::Tensor& tensor, const at::Tensor& seq_lens) {
    check::dim(kOp, name, tensor, 1);
    check::same_device(kOp, name, tensor, "seq_lens", seq_lens);
    check::contiguous(kOp, name, tensor);
}

void check_numbers(const DraftStepsArguments& a) {
    check::at_least(kOp, "topk", a.topk, 1);
    check::at_least(kOp, "num_steps", a.num_steps, 1);
    check::at_least(kOp, "max_context_len", a.max_context_len, 1);
    TORCH_CHECK_VALUE(a.topk <= kInt32Max, kOp, ": topk is ", a.topk, ", expected at most ", kInt32Max);
    TORCH_CHECK_VALUE(a.max_context_len <= kInt32Max && a.num_steps <= kInt32Max - a.max_context_len, kOp,
                      ": max_context_len is ", a.max_context_len, " and num_steps ", a.num_steps, ", expected at most ",
                      kInt32Max, " together");
}

void check_reservation(const DraftStepsArguments& a, const DraftStepsParams& p) {
    const at::Tensor& reservation = *a.reservation;
    TORCH_CHECK_VALUE(a.pool < 0 && !a.req_pool_indices.has_value(), kOp,
                      ": pool or req_pool_indices are given, expected neither beside a reservation");
    check_vector("reservation", reservation, a.seq_lens);
    check::dtype(kOp, "reservation", reservation, {at::kInt});
    TORCH_CHECK_VALUE(p.num_requests == 0 || a.topk * a.num_steps <= reservation.size(0) / p.num_requests, kOp,
                      ": reservation has ", reservation.size(0), " entries, expected at least ", p.num_requests, " x ",
                      p.topk, " x ", p.num_steps, " (requests, topk, steps)");
}

void check_tables(const DraftStepsArguments& a, DraftStepsParams& p, DraftStepsTensors& t) {
    TORCH_CHECK_VALUE(a.pool == kFull || a.pool == kSwa, kOp, ": reservation is None and pool is ", a.pool,
                      ", expected a reservation, or pool 0 (full) or 1 (swa) of tables");
    TORCH_CHECK_VALUE(p.topk == 1, kOp, ": topk is ", p.topk, ", expected 1 without a reservation");
    PoolAddresses addresses =
        check_pool_addresses(kOp, a.tables, a.addressing, "seq_lens", a.seq_lens, p.max_context_len);
    std::copy(addresses.pools.begin(), addresses.pools.end(), p.pools);
    t.tables = std::move(addresses.tables);
    p.pool = static_cast<int32_t>(a.pool);
    p.max_requests = addresses.max_requests;
    TORCH_CHECK_VALUE(has_pool(p.pools[p.pool]), kOp, ": pool is ", kPoolNames[p.pool], ", expected one that exists");
    if (a.req_pool_indices.has_value()) {
        check_vector("req_pool_indices", *a.req_pool_indices, a.seq_lens);
        check::integer(kOp, "req_pool_indices", *a.req_pool_indices);
        check::shape(kOp, "req_pool_indices", *a.req_pool_indices, {p.num_requests});
        p.has_requests = 1;
        p.request_is_int64 = a.req_pool_indices->scalar_type() == at::kLong;
        t.req_pool_indices = *a.req_pool_indices;
    }
}

void check_rope(const char* name, const at::Tensor& table, const DraftStepsArguments& a) {
    check::dtype(kOp, name, table, {a.rope_cos.scalar_type()});
    check::same_device(kOp, name, table, "seq_lens", a.seq_lens);
    check::shape(kOp, name, table, a.rope_cos.sizes());
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

DraftStepsParams check_draft_steps(const DraftStepsArguments& a, DraftStepsTensors& t) {
    check_numbers(a);
    const at::Tensor& lengths = a.seq_lens;
    check_vector("seq_lens", lengths, lengths);
    check::integer(kOp, "seq_lens", lengths);
    check::dim(kOp, "slots", t.slots, 2);
    DraftStepsParams p{};
    p.pool = -1;
    p.num_requests = lengths.size(0);
    p.num_entries = t.slots.size(1);
    p.max_context_len = a.max_context_len;
    p.topk = static_cast<int32_t>(a.topk);
    p.num_steps = static_cast<int32_t>(a.num_steps);
    p.length_is_int64 = lengths.scalar_type() == at::kLong;
    p.dummy_slot = static_cast<int32_t>(a.dummy_slot);
    TORCH_CHECK_VALUE(p.dummy_slot == a.dummy_slot, kOp, ": dummy_slot is ", a.dummy_slot,
                      ", expected a number within int32");
    TORCH_CHECK_VALUE(p.num_requests <= p.num_entries / p.topk, kOp, ": slots has ", p.num_entries,
                      " columns, expected at least ", p.num_requests, " x ", p.topk, " (requests, topk)");
    if (a.reservation.has_value()) {
        check_reservation(a, p);
        t.reservation = *a.reservation;
    } else {
        check_tables(a, p, t);
    }
    check::dim(kOp, "rope_cos", a.rope_cos, 2);
    check::rope_dtype(kOp, "rope_cos", a.rope_cos);
    TORCH_CHECK_VALUE(a.rope_cos.size(0) >= p.max_context_len, kOp, ": rope_cos has ", a.rope_cos.size(0),
                      " rows, expected at least ", p.max_context_len, " (max_context_len)");
    check_rope("rope_cos", a.rope_cos, a);
    check_rope("rope_sin", a.rope_sin, a);
    p.rope_dim = a.rope_cos.size(1);
    p.rope_bytes = static_cast<int32_t>(a.rope_cos.element_size());
    const at::ScalarType rope_dtype = a.rope_cos.scalar_type();
    check_output("slots", t.slots, at::kInt, {p.num_steps, p.num_entries}, lengths);
    check_output("positions", t.positions, at::kLong, {p.num_steps, p.num_entries}, lengths);
    check_output("kv_lens", t.kv_lens, at::kInt, {p.num_steps, p.num_entries}, lengths);
    check_output("cos", t.cos, rope_dtype, {p.num_steps, p.num_entries, p.rope_dim}, lengths);
    check_output("sin", t.sin, rope_dtype, {p.num_steps, p.num_entries, p.rope_dim}, lengths);
    t.seq_lens = lengths;
    t.rope_cos = a.rope_cos;
    t.rope_sin = a.rope_sin;
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "draft_steps(Tensor[] tables, int[] addressing, Tensor? req_pool_indices, Tensor? reservation, Tensor seq_lens,"
        " Tensor rope_cos, Tensor rope_sin, int pool, int topk, int num_steps, int max_context_len, int dummy_slot,"
        " Tensor(a!) slots, Tensor(b!) positions, Tensor(c!) kv_lens, Tensor(d!) cos, Tensor(e!) sin) -> ()");
}

}  // namespace dsv4
