#include "ops/advance_step/advance_step.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <limits>

#include "torch/check.h"
#include "torch/empty_tensors.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "advance_step";
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

constexpr const char* kFieldNames[kNumAdvancedFields] = {
    "next_seq_lens", "extend_lens",   "next_token_ids",     "positions",    "out_full_loc",
    "out_swa_loc",   "sampled_index", "next_hidden_states", "valid_counts", "rejected_lens"};

// Returns whether the values are int64.
int32_t check_row_values(const char* name, const at::Tensor& values, int64_t entries, const AdvanceArguments& a) {
    check::dim(kOp, name, values, 1);
    check::integer(kOp, name, values);
    check::same_device(kOp, name, values, "seq_lens", a.seq_lens);
    check::shape(kOp, name, values, {entries});
    check::contiguous(kOp, name, values);
    return values.scalar_type() == at::kLong;
}

int32_t check_optional_row_values(const char* name, const std::optional<at::Tensor>& values, at::Tensor& target,
                                  const AdvanceArguments& a) {
    if (!values.has_value()) {
        return 0;
    }
    target = *values;
    return check_row_values(name, target, a.seq_lens.size(0), a);
}

void check_rows(const AdvanceArguments& a, AdvanceStepParams& p, AdvanceTensors& t) {
    check::dim(kOp, "seq_lens", a.seq_lens, 1);
    p.num_rows = a.seq_lens.size(0);
    t.seq_lens = a.seq_lens;
    p.length_is_int64 = check_row_values("seq_lens", a.seq_lens, p.num_rows, a);
    p.request_is_int64 = check_optional_row_values("req_pool_indices", a.req_pool_indices, t.req_pool_indices, a);
    p.accepted_is_int64 = check_optional_row_values("accepted_lens", a.accepted_lens, t.accepted_lens, a);
    p.drafts_is_int64 = check_optional_row_values("num_draft_tokens", a.num_draft_tokens, t.num_draft_tokens, a);
    p.has_requests = a.req_pool_indices.has_value();
    p.has_drafts = a.num_draft_tokens.has_value();
    p.lengths_are_final = a.lengths_are_final;
    TORCH_CHECK_VALUE(
        !p.has_drafts || !a.accepted_lens.has_value(), kOp,
        ": num_draft_tokens is a tensor beside accepted_lens, expected None: they say what is rejected of "
        "samples");
}

// Samples, or the tokens of all inputs.
void check_tokens(const AdvanceArguments& a, AdvanceStepParams& p, AdvanceTensors& t) {
    const at::Tensor& tokens = a.token_ids;
    check::integer(kOp, "token_ids", tokens);
    check::same_device(kOp, "token_ids", tokens, "seq_lens", a.seq_lens);
    check::contiguous(kOp, "token_ids", tokens);
    check::at_least(kOp, "width", a.width, 0);
    p.token_is_int64 = tokens.scalar_type() == at::kLong;
    TORCH_CHECK_VALUE(tokens.numel() <= kInt32Max, kOp, ": token_ids has ", tokens.numel(),
                      " entries, expected at most ", kInt32Max);
    if (!a.accepted_lens.has_value()) {
        check::dim(kOp, "token_ids", tokens, 2);
        check::shape(kOp, "token_ids", tokens, {p.num_rows, tokens.size(1)});
        check::at_least(kOp, "columns of token_ids", tokens.size(1), 1);
        p.num_samples = static_cast<int32_t>(tokens.size(1));
    } else if (tokens.dim() == 2) {
        check::shape(kOp, "token_ids", tokens, {p.num_rows, a.width});
    } else {
        check::dim(kOp, "token_ids", tokens, 1);
    }
    p.num_tokens = a.accepted_lens.has_value()   ? tokens.numel()
                   : a.hidden_states.has_value() ? a.hidden_states->size(0)
                                                 : kInt32Max;
    t.token_ids = tokens;
    if (a.backup_tokens.has_value()) {
        check::shape(kOp, "backup_tokens", *a.backup_tokens, {p.num_rows});
        check::dtype(kOp, "backup_tokens", *a.backup_tokens, {tokens.scalar_type()});
        check::same_device(kOp, "backup_tokens", *a.backup_tokens, "seq_lens", a.seq_lens);
        check::contiguous(kOp, "backup_tokens", *a.backup_tokens);
        p.has_backup = 1;
        t.backup_tokens = *a.backup_tokens;
    }
}

// Where each row's tokens lie.
void check_intervals(const AdvanceArguments& a, AdvanceStepParams& p, AdvanceTensors& t) {
    if (a.cu_seqlens.has_value()) {
        check_row_values("cu_seqlens", *a.cu_seqlens, p.num_rows + 1, a);
        check::dtype(kOp, "cu_seqlens", *a.cu_seqlens, {at::kInt});
        p.has_cu_seqlens = 1;
        t.cu_seqlens = *a.cu_seqlens;
        return;
    }
    p.width = a.width;
    TORCH_CHECK_VALUE(p.num_rows == 0 || p.width <= p.num_tokens / p.num_rows, kOp, ": there are ", p.num_tokens,
                      " tokens, expected at least ", p.width, " for each of ", p.num_rows, " rows");
}

void check_fields(const AdvanceArguments& a, AdvanceStepParams& p, const AdvanceTensors& t) {
    for (int32_t field = 0; field < kNumAdvancedFields; ++field) {
        if (t.fields[field].defined()) {
            check::same_device(kOp, kFieldNames[field], t.fields[field], "seq_lens", a.seq_lens);
            check::contiguous(kOp, kFieldNames[field], t.fields[field]);
            p.wanted |= 1 << field;
        }
    }
}

// Returns whether the new lengths take the place of the old ones; a part of them may not.
int32_t check_next_lengths(const at::Tensor& seq_lens, const at::Tensor& next) {
    const at::MemOverlapStatus overlap = at::get_overlap_status(next, seq_lens);
    TORCH_CHECK_VALUE(overlap == at::MemOverlapStatus::No || overlap == at::MemOverlapStatus::Full, kOp,
                      ": next_seq_lens overlaps seq_lens in part, expected the same tensor or another one");
    return overlap == at::MemOverlapStatus::Full;
}

void check_hidden(const AdvanceArguments& a, AdvanceStepParams& p, AdvanceTensors& t) {
    const bool wanted = wants(p, kAdvancedHidden);
    TORCH_CHECK_VALUE(a.hidden_states.has_value() == wanted, kOp, ": next_hidden_states is ",
                      wanted ? "a tensor" : "None", ", expected ", wanted ? "None" : "a tensor", " like hidden_states");
    if (!wanted) {
        return;
    }
    const at::Tensor& hidden = *a.hidden_states;
    check::dtype(kOp, "hidden_states", hidden, {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble});
    check::same_device(kOp, "hidden_states", hidden, "seq_lens", a.seq_lens);
    TORCH_CHECK_VALUE(hidden.dim() >= 2 && hidden.size(0) == p.num_tokens, kOp, ": hidden_states has shape ",
                      hidden.sizes(), ", expected [", p.num_tokens, ", ..], a row for each token");
    check::contiguous(kOp, "hidden_states", hidden);
    c10::DimVector shape(hidden.sizes());
    shape[0] = p.num_rows;
    check::dtype(kOp, kFieldNames[kAdvancedHidden], t.fields[kAdvancedHidden], {hidden.scalar_type()});
    check::shape(kOp, kFieldNames[kAdvancedHidden], t.fields[kAdvancedHidden], shape);
    p.hidden_row_halves = c10::multiply_integers(hidden.sizes().slice(1)) * hidden.element_size() / 2;
    t.hidden_states = hidden;
}

void check_outputs(const AdvanceArguments& a, AdvanceStepParams& p, AdvanceTensors& t) {
    const at::ScalarType dtypes[kNumAdvancedFields] = {a.seq_lens.scalar_type(),
                                                       at::kInt,
                                                       a.token_ids.scalar_type(),
                                                       at::kLong,
                                                       at::kInt,
                                                       at::kInt,
                                                       at::kLong,
                                                       at::kInt,
                                                       at::kInt,
                                                       at::kInt};
    for (int32_t field = 0; field < kNumAdvancedFields; ++field) {
        if (wants(p, field) && field != kAdvancedHidden) {
            check::dtype(kOp, kFieldNames[field], t.fields[field], {dtypes[field]});
            check::shape(kOp, kFieldNames[field], t.fields[field], {p.num_rows});
        }
    }
    if (wants(p, kAdvancedLengths)) {
        p.in_place = check_next_lengths(a.seq_lens, t.fields[kAdvancedLengths]);
    }
    for (const int32_t pool : {kFull, kSwa}) {
        TORCH_CHECK_VALUE(!wants(p, kAdvancedFullSlots + pool) || has_pool(p.pools[pool]), kOp, ": ",
                          kFieldNames[kAdvancedFullSlots + pool], " is asked for, expected a pool ", kPoolNames[pool],
                          " that exists");
    }
    check_hidden(a, p, t);
}

}  // namespace

AdvanceStepParams check_advance_step(const AdvanceArguments& a, AdvanceTensors& t) {
    AdvanceStepParams p{};
    check_rows(a, p, t);
    check_tokens(a, p, t);
    check_intervals(a, p, t);
    PoolAddresses addresses =
        check_pool_addresses(kOp, a.tables, a.addressing, "seq_lens", a.seq_lens, a.max_context_len);
    std::copy(addresses.pools.begin(), addresses.pools.end(), p.pools);
    t.tables = std::move(addresses.tables);
    p.max_requests = addresses.max_requests;
    p.max_context_len = a.max_context_len;
    TORCH_CHECK_VALUE(a.dummy_slots.size() == 2, kOp, ": dummy_slots has ", a.dummy_slots.size(),
                      " entries, expected 2, for full and swa");
    for (size_t i = 0; i < 2; ++i) {
        p.dummy_slots[i] = check::dummy(kOp, "dummy_slots", a.dummy_slots[i]);
    }
    check_fields(a, p, t);
    check_outputs(a, p, t);
    return p;
}

std::vector<at::Tensor> new_sample_buffers(const at::Tensor& seq_lens, const at::Tensor& token_ids) {
    check::dim(kOp, "seq_lens", seq_lens, 1);
    check::dim(kOp, "token_ids", token_ids, 2);
    check::integer(kOp, "token_ids", token_ids);
    const auto of_rows = [&](at::ScalarType dtype) { return empty_tensor(dtype, seq_lens.sizes(), seq_lens.device()); };
    return {of_rows(token_ids.scalar_type()), of_rows(at::kInt), of_rows(at::kLong), of_rows(at::kInt)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "advance_step(Tensor[] tables, int[] addressing, Tensor? req_pool_indices, Tensor seq_lens,"
        " Tensor? accepted_lens, Tensor token_ids, Tensor? cu_seqlens, Tensor? num_draft_tokens, Tensor? backup_tokens,"
        " Tensor? hidden_states, int width, int max_context_len, Tensor(a!)? next_seq_lens, Tensor(b!)? extend_lens,"
        " Tensor(c!)? next_token_ids, Tensor(d!)? positions, Tensor(e!)? out_full_loc, Tensor(f!)? out_swa_loc,"
        " Tensor(g!)? sampled_index, Tensor(h!)? next_hidden_states=None, Tensor(i!)? valid_counts=None,"
        " Tensor(j!)? rejected_lens=None, bool lengths_are_final=False, int[] dummy_slots=[0, 0]) -> ()");
    m.def(
        "advance_step.samples(Tensor seq_lens, Tensor token_ids, Tensor? cu_seqlens, Tensor? num_draft_tokens,"
        " Tensor? backup_tokens, int max_context_len, bool lengths_are_final=False) -> Tensor[]");
}

}  // namespace dsv4
