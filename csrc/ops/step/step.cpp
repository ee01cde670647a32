#include "ops/step/step.h"

#include <algorithm>
#include <limits>

#include "cpu/step_scan.h"
#include "torch/check.h"
#include "torch/rope_dtype.h"

namespace dsv4 {

const char* const kStepFieldNames[kNumStepFields] = {"out.out_full_loc",
                                                     "out.out_swa_loc",
                                                     "out.out_c4_loc",
                                                     "out.out_c128_loc",
                                                     "out.out_c4_state_loc",
                                                     "out.out_c128_state_loc",
                                                     "out.full_page_table",
                                                     "out.swa_page_table",
                                                     "out.c4_page_table",
                                                     "out.c128_page_table",
                                                     "out.c4_state_page_table",
                                                     "out.c128_state_page_table",
                                                     "out.positions",
                                                     "out.positions_c4",
                                                     "out.positions_c128",
                                                     "out.start_pos",
                                                     "out.seqused",
                                                     "out.kv_lens",
                                                     "out.cu_seqlens",
                                                     "out.num_groups",
                                                     "out.c4_cos",
                                                     "out.c4_sin",
                                                     "out.c128_cos",
                                                     "out.c128_sin",
                                                     "out.c4_state_locs",
                                                     "out.c128_state_locs",
                                                     "out.window_locs",
                                                     "out.main_cos",
                                                     "out.main_sin",
                                                     "out.compress_cos",
                                                     "out.compress_sin"};

const char* const kTokenRopeNames[kNumTokenRope] = {"main_rope_cos", "main_rope_sin", "compress_rope_cos",
                                                    "compress_rope_sin"};

const char* step_operand_name(int32_t form) {
    return form == kPrefill        ? "prefix_lens"
           : form == kFinalOffsets ? "cu_seqlens"
           : form_is_final(form)   ? "num_new_tokens"
                                   : "num_draft_tokens";
}

namespace {

constexpr char kOp[] = "step";
constexpr int32_t kInt32Max = std::numeric_limits<int32_t>::max();

// A one-dimensional input with one entry a row, or one more.
void check_row_vector(const char* op, const char* name, const at::Tensor& values, int64_t entries,
                      const at::Tensor& seq_lens) {
    check::dim(op, name, values, 1);
    check::integer(op, name, values);
    check::same_device(op, name, values, "seq_lens", seq_lens);
    check::shape(op, name, values, {entries});
    check::contiguous(op, name, values);
}

void sort_fields(const StepArguments& a, StepParams& p, StepTensors& t) {
    TORCH_CHECK_VALUE(a.fields >= 0 && a.fields < int64_t{1} << kNumStepFields, kOp, ": fields is ", a.fields,
                      ", expected a bit for each of ", kNumStepFields, " fields");
    p.wanted = static_cast<int32_t>(a.fields);
    size_t given = 0;
    for (int32_t field = 0; field < kNumStepFields; ++field) {
        if (wants(p, field) && given++ < a.out.size()) {
            check::same_device(kOp, kStepFieldNames[field], a.out[given - 1], "seq_lens", a.seq_lens);
            t.fields[field] = a.out[given - 1];
        }
    }
    TORCH_CHECK_VALUE(a.out.size() == given, kOp, ": out has ", a.out.size(), " tensors, expected ", given,
                      ", one for each bit of fields");
}

void check_output(int32_t field, const StepTensors& t, std::initializer_list<at::ScalarType> dtypes,
                  at::IntArrayRef shape) {
    if (t.fields[field].defined()) {
        const char* name = kStepFieldNames[field];
        check::dtype(kOp, name, t.fields[field], dtypes);
        check::shape(kOp, name, t.fields[field], shape);
        check::contiguous(kOp, name, t.fields[field]);
    }
}

// Entries that every output of a list of fields has; `none` when none is asked for.
int32_t common_entries(std::initializer_list<int32_t> fields, const StepTensors& t, int32_t none) {
    for (const int32_t field : fields) {
        if (t.fields[field].defined()) {
            TORCH_CHECK_VALUE(t.fields[field].dim() >= 1, kOp, ": ", kStepFieldNames[field],
                              " has no dimension, expected at least 1");
            TORCH_CHECK_VALUE(t.fields[field].size(0) <= kInt32Max, kOp, ": ", kStepFieldNames[field], " has ",
                              t.fields[field].size(0), " entries, expected at most ", kInt32Max);
            return static_cast<int32_t>(t.fields[field].size(0));
        }
    }
    return none;
}

void check_entries(StepParams& p, StepTensors& t) {
    p.rows.num_tokens = common_entries(
        {kFieldPositions, kFieldSlots + kFull, kFieldSlots + kSwa, kFieldSlots + kC4State, kFieldSlots + kC128State,
         kFieldMainCos, kFieldMainSin, kFieldCompressCos, kFieldCompressSin},
        t, kInt32Max);
    for (int32_t which = 0; which < 2; ++which) {
        const int32_t cos = kFieldC4Cos + 2 * which;
        p.capacity_groups[which] =
            common_entries({kFieldGroupPositions + which, kFieldSlots + kC4 + which, cos, cos + 1}, t, kInt32Max);
        check_output(kFieldGroupPositions + which, t, {at::kLong}, {p.capacity_groups[which]});
        check_output(cos, t, {at::kFloat}, {p.capacity_groups[which], p.rope_dim});
        check_output(cos + 1, t, {at::kFloat}, {p.capacity_groups[which], p.rope_dim});
    }
    check_output(kFieldPositions, t, {at::kLong}, {p.rows.num_tokens});
    for (int32_t i = 0; i < kNumTokenRope; ++i) {
        if (wants(p, kFieldMainCos + i)) {
            check_output(kFieldMainCos + i, t, {t.token_rope[i].scalar_type()},
                         {p.rows.num_tokens, p.token_rope_dim[i / 2]});
        }
    }
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const int64_t entries = is_group_pool(pool) ? p.capacity_groups[pool - kC4] : p.rows.num_tokens;
        if (!wants(p, kFieldSlots + pool)) {
            continue;
        }
        const at::Tensor& slots = t.fields[kFieldSlots + pool];
        if (slots.dim() == 2) {
            check_output(kFieldSlots + pool, t, {at::kInt}, {entries, 2});
            p.pair_slots |= 1 << pool;
        } else {
            check_output(kFieldSlots + pool, t, {at::kInt, at::kLong}, {entries});
            p.wide_slots |= (slots.scalar_type() == at::kLong) << pool;
        }
    }
    for (const int32_t field : {kFieldStartPos, kFieldSeqUsed, kFieldKvLens}) {
        check_output(field, t, {at::kInt}, {p.rows.num_rows});
    }
    check_output(kFieldCuSeqlens, t, {at::kInt}, {p.rows.num_rows + 1});
    check_output(kFieldNumGroups, t, {at::kInt}, {2});
    TORCH_CHECK_VALUE(!p.rows.closes_cu_seqlens || p.rows.num_tokens != kInt32Max, kOp,
                      ": closes_cu_seqlens is True, expected an output with an entry for each token");
}

// What needs a pool's slots or pages may be asked for only if the pool gives them.
void check_pool_gives(int32_t field, int32_t pool, bool pages, const StepParams& p) {
    const PoolAddress& a = p.pools[pool];
    TORCH_CHECK_VALUE(!wants(p, field) || (pages ? has_pages(a) : has_pool(a)), kOp, ": ", kStepFieldNames[field],
                      " is asked for, expected a pool ", kPoolNames[pool],
                      has_pool(a) ? " that knows pages" : " that exists");
}

void check_page_tables(StepParams& p, const StepTensors& t) {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const int32_t field = kFieldPageTable + pool;
        check_pool_gives(kFieldSlots + pool, pool, false, p);
        TORCH_CHECK_VALUE(!are_pairs(p, pool) || has_pages(p.pools[pool]), kOp, ": ",
                          kStepFieldNames[kFieldSlots + pool], " is asked for as pairs, expected a pool ",
                          kPoolNames[pool], " that knows pages");
        check_pool_gives(field, pool, true, p);
        if (!wants(p, field)) {
            continue;
        }
        const at::Tensor& table = t.fields[field];
        const char* name = kStepFieldNames[field];
        check::dim(kOp, name, table, 2);
        check::dtype(kOp, name, table, {at::kInt});
        check::contiguous_rows(kOp, name, table);
        TORCH_CHECK_VALUE(table.size(0) == p.rows.num_rows && table.size(1) >= 1 && table.size(1) <= kInt32Max, kOp,
                          ": ", name, " has shape ", table.sizes(), ", expected ", p.rows.num_rows,
                          " rows of at least 1 column");
        TORCH_CHECK_VALUE(table.size(0) <= 1 || table.stride(0) >= table.size(1), kOp, ": ", name, " has strides ",
                          table.strides(), ", expected rows that do not overlap");
        const int64_t row_elems = table.size(0) <= 1 ? table.size(1) : table.stride(0);
        TORCH_CHECK_VALUE(row_elems <= kInt32Max, kOp, ": ", name, " has strides ", table.strides(),
                          ", expected rows at most ", kInt32Max, " elements apart");
        p.page_columns[pool] = static_cast<int32_t>(table.size(1));
        p.page_row_elems[pool] = static_cast<int32_t>(row_elems);
    }
}

void check_state_locs(StepParams& p, const StepTensors& t) {
    for (int32_t which = 0; which < 2; ++which) {
        const int32_t field = kFieldC4StateLocs + which;
        check_pool_gives(field, kC4State + which, false, p);
        if (!wants(p, field)) {
            continue;
        }
        check::dim(kOp, kStepFieldNames[field], t.fields[field], 2);
        check_output(field, t, {at::kInt}, {p.rows.num_rows, t.fields[field].size(1)});
        TORCH_CHECK_VALUE(
            t.fields[field].size(1) >= state_lead(ratio_of(which)) && t.fields[field].size(1) <= kInt32Max, kOp, ": ",
            kStepFieldNames[field], " has ", t.fields[field].size(1), " columns, expected at least ",
            state_lead(ratio_of(which)), " and one for each new token of a row");
        p.state_columns[which] = static_cast<int32_t>(t.fields[field].size(1));
    }
}

void check_window_locs(StepParams& p, const StepTensors& t, int64_t window_block) {
    check_pool_gives(kFieldWindowLocs, kSwa, false, p);
    if (!wants(p, kFieldWindowLocs)) {
        return;
    }
    const at::Tensor& locs = t.fields[kFieldWindowLocs];
    check::dim(kOp, kStepFieldNames[kFieldWindowLocs], locs, 2);
    check_output(kFieldWindowLocs, t, {at::kInt}, locs.sizes());
    TORCH_CHECK_VALUE(window_block >= 1 && window_block <= kInt32Max, kOp, ": window_block is ", window_block,
                      ", expected at least 1");
    TORCH_CHECK_VALUE(locs.size(0) >= p.rows.num_rows * window_block && locs.size(0) % window_block == 0 &&
                          locs.size(0) <= kInt32Max && locs.size(1) >= 1 && locs.size(1) <= kInt32Max,
                      kOp, ": out.window_locs has shape ", locs.sizes(), ", expected a multiple of ", window_block,
                      " rows, at least ", p.rows.num_rows * window_block, ", and at least 1 column");
    p.window_rows = static_cast<int32_t>(locs.size(0));
    p.window_columns = static_cast<int32_t>(locs.size(1));
    p.window_block = static_cast<int32_t>(window_block);
}

// Rows of a RoPE table that a position can name.
int32_t positions_in(const at::Tensor& table) {
    return static_cast<int32_t>(std::min<int64_t>(table.size(0), kInt32Max));
}

void check_rope(const StepArguments& a, StepParams& p, StepTensors& t) {
    const bool wanted =
        wants(p, kFieldC4Cos) || wants(p, kFieldC4Sin) || wants(p, kFieldC128Cos) || wants(p, kFieldC128Sin);
    if (!wanted) {
        return;
    }
    TORCH_CHECK_VALUE(a.rope_cos.has_value() && a.rope_sin.has_value(), kOp,
                      ": RoPE rows are asked for, expected rope_cos and rope_sin");
    check::dim(kOp, "rope_cos", *a.rope_cos, 2);
    TORCH_CHECK_VALUE(a.rope_cos->size(0) >= 1, kOp, ": rope_cos has shape ", a.rope_cos->sizes(),
                      ", expected at least 1 row");
    for (const auto& [name, table] : {std::pair{"rope_cos", *a.rope_cos}, std::pair{"rope_sin", *a.rope_sin}}) {
        check::dtype(kOp, name, table, {at::kFloat});
        check::same_device(kOp, name, table, "seq_lens", a.seq_lens);
        check::shape(kOp, name, table, a.rope_cos->sizes());
        check::contiguous(kOp, name, table);
    }
    TORCH_CHECK_VALUE(a.rope_cos->size(1) <= kInt32Max / 4, kOp, ": rope_cos has shape ", a.rope_cos->sizes(),
                      ", expected rows of at most ", kInt32Max / 4, " elements");
    p.max_pos = positions_in(*a.rope_cos);
    p.rope_dim = static_cast<int32_t>(a.rope_cos->size(1));
    t.rope_cos = *a.rope_cos;
    t.rope_sin = *a.rope_sin;
}

// The tables of the tokens' RoPE rows that are asked for: of each base, cosines and sines are of one type and shape.
void check_token_rope(const StepArguments& a, StepParams& p, StepTensors& t) {
    for (int32_t i = 0; i < kNumTokenRope; ++i) {
        if (!wants(p, kFieldMainCos + i)) {
            continue;
        }
        const char* name = kTokenRopeNames[i];
        const at::Tensor& table = a.token_rope[i];
        TORCH_CHECK_VALUE(table.defined(), kOp, ": ", kStepFieldNames[kFieldMainCos + i], " is asked for, expected ",
                          name);
        check::dim(kOp, name, table, 2);
        check::rope_dtype(kOp, name, table);
        TORCH_CHECK_VALUE(table.size(0) >= 1 && table.size(1) <= kInt32Max / 4, kOp, ": ", name, " has shape ",
                          table.sizes(), ", expected at least 1 row, of at most ", kInt32Max / 4, " elements");
        check::same_device(kOp, name, table, "seq_lens", a.seq_lens);
        check::contiguous(kOp, name, table);
        const at::Tensor& cos = t.token_rope[i & ~1];
        if (cos.defined()) {
            check::dtype(kOp, name, table, {cos.scalar_type()});
            check::shape(kOp, name, table, cos.sizes());
        }
        const int32_t base = i / 2;
        p.token_max_pos[base] = positions_in(table);
        p.token_rope_dim[base] = static_cast<int32_t>(table.size(1));
        p.token_rope_type[base] = static_cast<int8_t>(element_type(table.scalar_type()));
        t.token_rope[i] = table;
    }
}

void check_dummies(const char* name, at::IntArrayRef values, int32_t (&dummies)[kNumPools]) {
    TORCH_CHECK_VALUE(values.size() == kNumPools, kOp, ": ", name, " has ", values.size(), " entries, expected ",
                      kNumPools, ", one a pool");
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        dummies[pool] = check::dummy(kOp, name, values[pool]);
    }
}

}  // namespace

StepRowsParams check_step_rows(const char* op, const StepRowArguments& a, StepTensors& t) {
    TORCH_CHECK_VALUE(a.form >= kPrefill && a.form <= kCommittedRagged, op, ": form is ", a.form, ", expected 0 to ",
                      kCommittedRagged);
    check::dim(op, "seq_lens", a.seq_lens, 1);
    const int64_t num_rows = a.seq_lens.size(0);
    check_row_vector(op, "seq_lens", a.seq_lens, num_rows, a.seq_lens);
    const int32_t form = static_cast<int32_t>(a.form);
    const char* operand = step_operand_name(form);
    TORCH_CHECK_VALUE(a.operand.has_value() == form_has_operand(form), op, ": ", operand, " is ",
                      a.operand.has_value() ? "a tensor" : "None", ", expected ",
                      form_has_operand(form) ? "a tensor" : "None", " for form ", form);
    TORCH_CHECK_VALUE(a.width >= 0 && a.width <= kInt32Max, op, ": ", operand, " is ", a.width, ", expected ",
                      a.width < 0 ? "at least 0" : "a number within int32");
    TORCH_CHECK_VALUE(num_rows <= kInt32Max, op, ": seq_lens has ", num_rows, " entries, expected at most ", kInt32Max);
    t.seq_lens = a.seq_lens;
    StepRowsParams rows{};
    rows.num_rows = static_cast<int32_t>(num_rows);
    rows.num_tokens = kInt32Max;
    rows.width = static_cast<int32_t>(a.width);
    rows.form = static_cast<int8_t>(form);
    rows.length_is_int64 = a.seq_lens.scalar_type() == at::kLong;
    if (a.operand.has_value()) {
        check_row_vector(op, operand, *a.operand, num_rows + (form == kFinalOffsets), a.seq_lens);
        rows.operand_is_int64 = a.operand->scalar_type() == at::kLong;
        t.operand = *a.operand;
    }
    if (a.req_pool_indices.has_value()) {
        check_row_vector(op, "req_pool_indices", *a.req_pool_indices, num_rows, a.seq_lens);
        rows.has_requests = 1;
        rows.request_is_int64 = a.req_pool_indices->scalar_type() == at::kLong;
        t.req_pool_indices = *a.req_pool_indices;
    }
    return rows;
}

StepParams check_step(const StepArguments& a, StepTensors& t) {
    StepParams p{};
    p.rows = check_step_rows(kOp, {a.seq_lens, a.operand, a.req_pool_indices, a.form, a.width}, t);
    p.rows.closes_cu_seqlens = a.closes_cu_seqlens;
    sort_fields(a, p, t);
    check_rope(a, p, t);
    check_token_rope(a, p, t);
    check_entries(p, t);
    PoolAddresses addresses =
        check_pool_addresses(kOp, a.tables, a.addressing, "seq_lens", a.seq_lens, a.max_context_len);
    std::copy(addresses.pools.begin(), addresses.pools.end(), p.pools);
    t.tables = std::move(addresses.tables);
    p.rows.max_requests = static_cast<int32_t>(addresses.max_requests);
    p.rows.max_context_len = static_cast<int32_t>(a.max_context_len);
    check::at_least(kOp, "window", a.window, 1);
    // No request is longer.
    p.window = static_cast<int32_t>(std::min<int64_t>(a.window, kInt32Max));
    check_page_tables(p, t);
    check_state_locs(p, t);
    check_window_locs(p, t, a.window_block);
    check_dummies("dummy_slots", a.dummy_slots, p.dummy_slots);
    check_dummies("dummy_pages", a.dummy_pages, p.dummy_pages);
    p.rows.max_seq_len = static_cast<int32_t>(covered_length(p, kInt32Max));
    return p;
}

std::vector<at::Tensor> new_step_buffers(at::IntArrayRef buffers, const at::Tensor& seq_lens,
                                         const std::optional<at::Tensor>& host_seq_lens,
                                         const std::optional<at::Tensor>& host_operand, int64_t form, int64_t width) {
    const auto stands_for_groups = [](int64_t number) { return number == kGroupsOf4 || number == kGroupsOf128; };
    if (std::none_of(buffers.begin(), buffers.end(), stands_for_groups)) {
        return empty_tensors(buffers, seq_lens.device());
    }
    TORCH_CHECK_VALUE(host_seq_lens.has_value(), kOp,
                      ": host_seq_lens is None, expected the lengths on the host, by which groups are counted");
    for (const auto& [name, rows] : {std::pair{"host_seq_lens", host_seq_lens}, {"host_operand", host_operand}}) {
        TORCH_CHECK_VALUE(!rows.has_value() || rows->is_cpu(), kOp, ": ", name, " is on ", rows->device(),
                          ", expected a host tensor (cpu)");
    }
    check::shape(kOp, "host_seq_lens", *host_seq_lens, seq_lens.sizes());
    const cpu::ScannedStep step = cpu::scan_host_rows(kOp, {*host_seq_lens, host_operand, std::nullopt, form, width});
    std::vector<int64_t> counted = buffers.vec();
    // Of each tensor: how many numbers follow, its dtype, its sizes. What is no such list, empty_tensors refuses.
    for (size_t i = 0; i < counted.size() && counted[i] >= 1; i += counted[i] + 1) {
        for (size_t k = i + 2; k < std::min(counted.size(), i + 1 + counted[i]); ++k) {
            counted[k] = counted[k] == kGroupsOf4     ? step.groups[0]
                         : counted[k] == kGroupsOf128 ? step.groups[1]
                                                      : counted[k];
        }
    }
    return empty_tensors(counted, seq_lens.device());
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "step(Tensor[] tables, int[] addressing, Tensor? req_pool_indices, Tensor seq_lens, Tensor? operand,"
        " Tensor? rope_cos, Tensor? rope_sin, int form, int width, int window, int max_context_len, Tensor(a!)[] out,"
        " int fields, int[] dummy_slots=[0, 0, 0, 0, 0, 0], int[] dummy_pages=[-1, -1, -1, -1, 0, 0],"
        " int window_block=1, bool closes_cu_seqlens=False, Tensor? main_rope_cos=None, Tensor? main_rope_sin=None,"
        " Tensor? compress_rope_cos=None, Tensor? compress_rope_sin=None) -> ()");
    m.def(
        "step.new(Tensor[] tables, int[] addressing, Tensor? req_pool_indices, Tensor seq_lens, Tensor? operand,"
        " Tensor? rope_cos, Tensor? rope_sin, int form, int width, int window, int max_context_len, int[] buffers,"
        " int fields, int[] dummy_slots=[0, 0, 0, 0, 0, 0], int[] dummy_pages=[-1, -1, -1, -1, 0, 0],"
        " int window_block=1, bool closes_cu_seqlens=False, Tensor? main_rope_cos=None, Tensor? main_rope_sin=None,"
        " Tensor? compress_rope_cos=None, Tensor? compress_rope_sin=None, Tensor? host_seq_lens=None,"
        " Tensor? host_operand=None) -> Tensor[]");
}

}  // namespace dsv4
