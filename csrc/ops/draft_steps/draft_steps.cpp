#include "ops/draft_steps/draft_steps.h"

#include <ATen/MemoryOverlap.h>

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

void check_limits(int64_t max_context_len, int64_t num_steps) {
    check::at_least(kOp, "max_context_len", max_context_len, 1);
    TORCH_CHECK_VALUE(max_context_len <= kInt32Max && num_steps <= kInt32Max - max_context_len, kOp,
                      ": max_context_len is ", max_context_len, " and num_steps ", num_steps, ", expected at most ",
                      kInt32Max, " together");
}

void check_numbers(const DraftStepsArguments& a) {
    check::at_least(kOp, "topk", a.topk, 1);
    check::at_least(kOp, "num_steps", a.num_steps, 1);
    TORCH_CHECK_VALUE(a.topk <= kInt32Max, kOp, ": topk is ", a.topk, ", expected at most ", kInt32Max);
    check_limits(a.max_context_len, a.num_steps);
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

void check_like(const char* name, const at::Tensor& tensor, at::ScalarType dtype, at::IntArrayRef shape,
                const at::Tensor& seq_lens) {
    check::dtype(kOp, name, tensor, {dtype});
    check::same_device(kOp, name, tensor, "seq_lens", seq_lens);
    check::shape(kOp, name, tensor, shape);
    check::contiguous(kOp, name, tensor);
}

// What both forms know of the first RoPE table; the others are like it.
void check_first_rope(const char* name, const at::Tensor& table, DraftStepsParams& p) {
    check::dim(kOp, name, table, 2);
    check::rope_dtype(kOp, name, table);
    TORCH_CHECK_VALUE(table.size(0) >= p.max_context_len, kOp, ": ", name, " has ", table.size(0),
                      " rows, expected at least ", p.max_context_len, " (max_context_len)");
    p.rope_dim = table.size(1);
    p.rope_bytes = static_cast<int32_t>(table.element_size());
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
    p.dummy_slot = check::dummy(kOp, "dummy_slot", a.dummy_slot);
    TORCH_CHECK_VALUE(p.num_requests <= p.num_entries / p.topk, kOp, ": slots has ", p.num_entries,
                      " columns, expected at least ", p.num_requests, " x ", p.topk, " (requests, topk)");
    if (a.reservation.has_value()) {
        check_reservation(a, p);
        t.reservation = *a.reservation;
    } else {
        check_tables(a, p, t);
    }
    check_first_rope("rope_cos", a.rope_cos, p);
    const at::ScalarType rope_dtype = a.rope_cos.scalar_type();
    check_like("rope_cos", a.rope_cos, rope_dtype, a.rope_cos.sizes(), lengths);
    check_like("rope_sin", a.rope_sin, rope_dtype, a.rope_cos.sizes(), lengths);
    check_like("slots", t.slots, at::kInt, {p.num_steps, p.num_entries}, lengths);
    check_like("positions", t.positions, at::kLong, {p.num_steps, p.num_entries}, lengths);
    check_like("kv_lens", t.kv_lens, at::kInt, {p.num_steps, p.num_entries}, lengths);
    check_like("cos", t.cos, rope_dtype, {p.num_steps, p.num_entries, p.rope_dim}, lengths);
    check_like("sin", t.sin, rope_dtype, {p.num_steps, p.num_entries, p.rope_dim}, lengths);
    t.seq_lens = lengths;
    t.rope_cos = a.rope_cos;
    t.rope_sin = a.rope_sin;
    return p;
}

namespace {

void check_count(const char* name, at::TensorList tensors, int64_t expected, const char* of) {
    TORCH_CHECK_VALUE(static_cast<int64_t>(tensors.size()) == expected, kOp, ": ", name, " has ", tensors.size(),
                      " tensors, expected ", expected, " (", of, ")");
}

// Tensors of a list, all of one dtype and shape. Names are made for what is wrong alone.
void check_alike(const char* name, at::TensorList tensors, at::ScalarType dtype, at::IntArrayRef shape,
                 const at::Tensor& seq_lens) {
    for (size_t i = 0; i < tensors.size(); ++i) {
        const at::Tensor& tensor = tensors[i];
        if (tensor.scalar_type() != dtype || tensor.device() != seq_lens.device() || tensor.sizes() != shape ||
            !tensor.is_contiguous()) {
            check_like(c10::str(name, "[", i, "]").c_str(), tensor, dtype, shape, seq_lens);
        }
    }
}

void check_requests(const DraftsApartArguments& a, DraftsApartParams& p) {
    check_vector("seq_lens", a.seq_lens, a.seq_lens);
    check::integer(kOp, "seq_lens", a.seq_lens);
    p.steps.num_requests = a.seq_lens.size(0);
    p.keys_are_int64 = a.seq_lens.scalar_type() == at::kLong;
    check_vector("last_positions", a.last_positions, a.seq_lens);
    check::integer(kOp, "last_positions", a.last_positions);
    check::shape(kOp, "last_positions", a.last_positions, {p.steps.num_requests});
    p.steps.length_is_int64 = a.last_positions.scalar_type() == at::kLong;
}

// Lengths are read again for each step.
void check_apart_from(const char* name, const at::Tensor& lengths, at::TensorList kv_lens) {
    for (size_t i = 0; i < kv_lens.size(); ++i) {
        const at::MemOverlapStatus overlap = at::get_overlap_status(kv_lens[i], lengths);
        TORCH_CHECK_VALUE(overlap != at::MemOverlapStatus::Full && overlap != at::MemOverlapStatus::Partial, kOp,
                          ": kv_lens[", i, "] overlaps ", name, ", expected another tensor");
    }
}

void check_blocks(const DraftsApartArguments& a, DraftStepsParams& p) {
    const at::Tensor& table = a.block_table;
    check::dim(kOp, "block_table", table, 2);
    check::integer(kOp, "block_table", table);
    check::same_device(kOp, "block_table", table, "seq_lens", a.seq_lens);
    check::contiguous_rows(kOp, "block_table", table);
    TORCH_CHECK_VALUE(a.block_size <= kInt32Max && is_power_of_two(a.block_size), kOp, ": block_size is ", a.block_size,
                      ", expected a power of two within int32");
    TORCH_CHECK_VALUE(table.size(0) >= p.num_requests && table.size(0) <= kInt32Max, kOp, ": block_table has ",
                      table.size(0), " rows, expected at least ", p.num_requests, " (requests)");
    TORCH_CHECK_VALUE(table.size(1) >= ceil_div(p.max_context_len, a.block_size) && table.size(1) <= kInt32Max, kOp,
                      ": block_table has ", table.size(1), " columns of ", a.block_size, " slots, expected room for ",
                      p.max_context_len, " (max_context_len)");
    PoolAddress& pool = p.pools[kFull];
    pool.kind = kPages;
    pool.page_shift = static_cast<int8_t>(log2_of(a.block_size));
    pool.is_int64 = table.scalar_type() == at::kLong;
    pool.columns = static_cast<int32_t>(table.size(1));
    pool.requests = static_cast<int32_t>(table.size(0));
    pool.row_elems = table.size(0) <= 1 ? table.size(1) : table.stride(0);
    p.pool = kFull;
    p.max_requests = table.size(0);
}

void check_bases(const DraftsApartArguments& a, DraftsApartParams& p) {
    TORCH_CHECK_VALUE(a.rope.size() % 2 == 0 && a.rope.size() <= 2 * kMaxDraftBases, kOp, ": rope has ", a.rope.size(),
                      " tensors, expected cosines and sines of up to ", kMaxDraftBases, " bases");
    p.num_bases = static_cast<int32_t>(a.rope.size() / 2);
    check_count("rope_rows", a.rope_rows, static_cast<int64_t>(a.rope.size()) * p.steps.num_steps, "rope and steps");
    if (p.num_bases == 0) {
        return;
    }
    check_first_rope("rope[0]", a.rope[0], p.steps);
    check_alike("rope", a.rope, a.rope[0].scalar_type(), a.rope[0].sizes(), a.seq_lens);
    check_alike("rope_rows", a.rope_rows, a.rope[0].scalar_type(), {p.steps.num_entries, p.steps.rope_dim}, a.seq_lens);
}

}  // namespace

DraftsApartParams check_drafts_apart(const DraftsApartArguments& a) {
    DraftsApartParams p{};
    TORCH_CHECK_VALUE(!a.slots.empty() && a.slots.size() <= static_cast<size_t>(kMaxStepsApart), kOp, ": slots has ",
                      a.slots.size(), " tensors, expected 1 to ", kMaxStepsApart, " (steps)");
    const auto num_steps = static_cast<int64_t>(a.slots.size());
    check_limits(a.max_context_len, num_steps);
    DraftStepsParams& steps = p.steps;
    steps.num_steps = static_cast<int32_t>(num_steps);
    steps.topk = 1;
    steps.max_context_len = a.max_context_len;
    steps.dummy_slot = check::dummy(kOp, "dummy_slot", a.dummy_slot);
    check_requests(a, p);
    const at::Tensor& slots = a.slots[0];
    TORCH_CHECK_VALUE(slots.dim() == 1 || (slots.dim() == 2 && slots.size(1) == 2), kOp, ": slots has shape ",
                      slots.sizes(), ", expected [N], or [N, 2] for pairs");
    p.pairs = slots.dim() == 2;
    steps.num_entries = slots.size(0);
    check::at_least(kOp, "entries of slots", steps.num_entries, 1);
    TORCH_CHECK_VALUE(steps.num_requests <= steps.num_entries, kOp, ": slots has ", steps.num_entries,
                      " entries, expected at least ", steps.num_requests, " (requests)");
    check_blocks(a, steps);
    check_alike("slots", a.slots, at::kInt, slots.sizes(), a.seq_lens);
    check_count("kv_lens", a.kv_lens, num_steps, "steps");
    check_alike("kv_lens", a.kv_lens, at::kInt, {steps.num_entries}, a.seq_lens);
    check_apart_from("seq_lens", a.seq_lens, a.kv_lens);
    check_apart_from("last_positions", a.last_positions, a.kv_lens);
    p.has_offsets = !a.cu_seqlens.empty();
    if (p.has_offsets != 0) {
        check_count("cu_seqlens", a.cu_seqlens, num_steps, "steps");
        check_alike("cu_seqlens", a.cu_seqlens, at::kInt, {steps.num_entries + 1}, a.seq_lens);
    }
    check_bases(a, p);
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "draft_steps(Tensor[] tables, int[] addressing, Tensor? req_pool_indices, Tensor? reservation, Tensor seq_lens,"
        " Tensor rope_cos, Tensor rope_sin, int pool, int topk, int num_steps, int max_context_len, int dummy_slot,"
        " Tensor(a!) slots, Tensor(b!) positions, Tensor(c!) kv_lens, Tensor(d!) cos, Tensor(e!) sin) -> ()");
    m.def(
        "draft_steps.apart(Tensor block_table, Tensor last_positions, Tensor seq_lens, Tensor[] rope, int block_size,"
        " int max_context_len, int dummy_slot, Tensor(a!)[] slots, Tensor(b!)[] kv_lens, Tensor(c!)[] cu_seqlens,"
        " Tensor(d!)[] rope_rows) -> ()");
}

}  // namespace dsv4
