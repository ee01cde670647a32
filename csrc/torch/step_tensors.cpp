#include "torch/step_tensors.h"

#include <ATen/ops/empty.h>

#include "torch/check.h"

namespace dsv4 {
namespace {

constexpr int64_t kInt32Max = (int64_t{1} << 31) - 1;

void check_row_vector(const char* op, const char* name, const at::Tensor& tensor, const at::Tensor& req_pool_indices) {
    check::dim(op, name, tensor, 1);
    check::integer(op, name, tensor);
    check::same_device(op, name, tensor, "req_pool_indices", req_pool_indices);
    check::shape(op, name, tensor, {req_pool_indices.size(0)});
    check::contiguous(op, name, tensor);
}

// Exactly the forms that have an operand get it.
void check_operand(const char* op, const char* name, const std::optional<at::Tensor>& operand, bool wanted,
                   const StepInputs& inputs) {
    TORCH_CHECK_VALUE(operand.has_value() == wanted, op, ": ", name, wanted ? " is None" : " is a tensor",
                      ", expected ", wanted ? "a tensor" : "None", " for form ", inputs.form);
    if (wanted) {
        check_row_vector(op, name, *operand, inputs.req_pool_indices);
    }
}

int64_t check_page_table(const char* op, const char* name, const at::Tensor& out, int64_t row_elems,
                         const at::Tensor& req_pool_indices) {
    check::dim(op, name, out, 2);
    if (pool_exists(row_elems)) {
        TORCH_CHECK_VALUE(out.size(1) >= 1, op, ": ", name, " has shape ", out.sizes(), ", expected at least 1 column");
    }
    check_step_output(op, name, out, at::kInt, {req_pool_indices.size(0), pool_exists(row_elems) ? out.size(1) : 0},
                      req_pool_indices);
    return out.size(1);
}

// positions and slots of the groups of one ratio; returns their common capacity.
int64_t check_groups(const char* op, const char* positions_name, const at::Tensor& positions, const char* loc_name,
                     const at::Tensor& loc, int64_t row_elems, const at::Tensor& req_pool_indices) {
    check::dim(op, positions_name, positions, 1);
    const int64_t capacity = positions.size(0);
    check_step_output(op, positions_name, positions, at::kLong, {capacity}, req_pool_indices);
    check_step_output(op, loc_name, loc, at::kInt, {pool_exists(row_elems) ? capacity : 0}, req_pool_indices);
    return capacity;
}

void check_num_tokens(const char* op, int64_t num_tokens) {
    check::at_least(op, "num_tokens", num_tokens, 0);
    TORCH_CHECK_VALUE(num_tokens <= kInt32Max, op, ": num_tokens is ", num_tokens, ", expected at most ", kInt32Max);
}

}  // namespace

StepInputs verify_inputs(const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                         const std::optional<at::Tensor>& num_draft_tokens, int64_t width, int64_t max_seq_len,
                         int64_t max_context_len) {
    static const std::optional<at::Tensor> no_prefix;
    return StepInputs{req_pool_indices,
                      seq_lens,
                      no_prefix,
                      num_draft_tokens,
                      num_draft_tokens.has_value() ? kVerifyRagged : kVerifyUniform,
                      width,
                      max_seq_len,
                      max_context_len};
}

StepRowsParams check_step_rows(const char* op, const StepInputs& inputs, int64_t num_tokens) {
    const at::Tensor& requests = inputs.req_pool_indices;
    check::dim(op, "req_pool_indices", requests, 1);
    check::integer(op, "req_pool_indices", requests);
    check::contiguous(op, "req_pool_indices", requests);
    check_row_vector(op, "seq_lens", inputs.seq_lens, requests);
    TORCH_CHECK_VALUE(inputs.form >= kPrefill && inputs.form <= kVerifyRagged, op, ": form is ", inputs.form,
                      ", expected 0 (prefill), 1 (decode), 2 (verify) or 3 (ragged verify)");
    check_operand(op, "prefix_lens", inputs.prefix_lens, inputs.form == kPrefill, inputs);
    check_operand(op, "num_draft_tokens", inputs.num_draft_tokens, inputs.form == kVerifyRagged, inputs);
    check::at_least(op, "num_draft_tokens", inputs.width, 0);
    check::at_least(op, "max_seq_len", inputs.max_seq_len, 0);
    check::at_least(op, "max_context_len", inputs.max_context_len, 1);
    TORCH_CHECK_VALUE(inputs.max_context_len <= kInt32Max, op, ": max_context_len is ", inputs.max_context_len,
                      ", expected at most ", kInt32Max);
    check_num_tokens(op, num_tokens);
    const std::optional<at::Tensor>& operand = inputs.operand();
    return StepRowsParams{requests.size(0),
                          num_tokens,
                          0,
                          inputs.max_context_len,
                          inputs.max_seq_len,
                          inputs.width,
                          static_cast<int32_t>(inputs.form),
                          requests.scalar_type() == at::kLong,
                          inputs.seq_lens.scalar_type() == at::kLong,
                          operand.has_value() && operand->scalar_type() == at::kLong};
}

StepRowsParams check_step_inputs(const char* op, const StepInputs& inputs, const at::Tensor& swa_table,
                                 int64_t num_tokens) {
    StepRowsParams rows = check_step_rows(op, inputs, num_tokens);
    check::dim(op, "swa_table", swa_table, 2);
    rows.max_requests = swa_table.size(0);
    return rows;
}

int64_t check_request_table(const char* op, const char* name, const at::Tensor& table, int64_t ratio,
                            const StepRowsParams& rows, const at::Tensor& req_pool_indices) {
    check::dim(op, name, table, 2);
    check::dtype(op, name, table, {at::kInt});
    check::same_device(op, name, table, "req_pool_indices", req_pool_indices);
    TORCH_CHECK_VALUE(table.size(0) == rows.max_requests, op, ": ", name, " has ", table.size(0), " rows, expected ",
                      rows.max_requests, " like the other tables");
    const int64_t columns = table.size(1);
    if (columns == 0) {
        return 0;
    }
    check::contiguous_rows(op, name, table);
    TORCH_CHECK_VALUE(columns >= rows.max_context_len / ratio, op, ": ", name, " has ", columns,
                      " columns, expected at least ", rows.max_context_len / ratio, " for max_context_len ",
                      rows.max_context_len);
    if (rows.max_requests <= 1) {
        return columns;  // the stride of a single row means nothing
    }
    TORCH_CHECK_VALUE(table.stride(0) >= columns, op, ": ", name, " has strides ", table.strides(),
                      ", expected rows that do not overlap");
    return table.stride(0);
}

void check_step_output(const char* op, const char* name, const at::Tensor& out, at::ScalarType dtype,
                       at::IntArrayRef shape, const at::Tensor& req_pool_indices) {
    check::dtype(op, name, out, {dtype});
    check::same_device(op, name, out, "req_pool_indices", req_pool_indices);
    check::shape(op, name, out, shape);
    check::contiguous(op, name, out);
}

int32_t check_page_size(const char* op, int64_t page_size) {
    TORCH_CHECK_VALUE(is_power_of_two(page_size) && page_size <= kInt32Max, op, ": page_size is ", page_size,
                      ", expected a power of two from 1 up");
    return log2_of(page_size);
}

StepMetadataParams check_step_metadata(const char* op, const StepRowsParams& rows, const StepInputs& inputs,
                                       const MetadataTables& tables, int64_t page_size, int64_t window,
                                       const MetadataTensors& out) {
    const at::Tensor& requests = inputs.req_pool_indices;
    const int64_t num_rows = rows.num_rows;
    StepMetadataParams p{};
    p.page_shift = check_page_size(op, page_size);
    check::at_least(op, "window", window, 1);
    p.window = window;
    p.swa_row_elems = check_request_table(op, "swa_table", tables.swa, 1, rows, requests);
    p.c4_row_elems = check_request_table(op, "c4_table", tables.c4, kRatioC4, rows, requests);
    p.c128_row_elems = check_request_table(op, "c128_table", tables.c128, kRatioC128, rows, requests);
    p.c4_state_row_elems = check_request_table(op, "c4_state_table", tables.c4_state, 1, rows, requests);
    p.c128_state_row_elems = check_request_table(op, "c128_state_table", tables.c128_state, 1, rows, requests);
    p.c4_capacity_groups =
        check_groups(op, "positions_c4", out.positions_c4, "c4_loc", out.c4_loc, p.c4_row_elems, requests);
    p.c128_capacity_groups =
        check_groups(op, "positions_c128", out.positions_c128, "c128_loc", out.c128_loc, p.c128_row_elems, requests);
    check_step_output(op, "start_pos", out.start_pos, at::kInt, {num_rows}, requests);
    check_step_output(op, "seqused", out.seqused, at::kInt, {num_rows}, requests);
    check_step_output(op, "cu_seqlens", out.cu_seqlens, at::kInt, {num_rows + 1}, requests);
    check_step_output(op, "positions", out.positions, at::kLong, {rows.num_tokens}, requests);
    check_step_output(op, "kv_lens", out.kv_lens, at::kInt, {num_rows}, requests);
    p.swa_columns_pages = check_page_table(op, "swa_page_table", out.swa_page_table, p.swa_row_elems, requests);
    p.c4_columns_pages = check_page_table(op, "c4_page_table", out.c4_page_table, p.c4_row_elems, requests);
    p.c128_columns_pages = check_page_table(op, "c128_page_table", out.c128_page_table, p.c128_row_elems, requests);
    p.c4_state_columns_pages =
        check_page_table(op, "c4_state_page_table", out.c4_state_page_table, p.c4_state_row_elems, requests);
    p.c128_state_columns_pages =
        check_page_table(op, "c128_state_page_table", out.c128_state_page_table, p.c128_state_row_elems, requests);
    return p;
}

MetadataTensors empty_step_metadata(const char* op, const StepInputs& inputs, const MetadataTables& tables,
                                    int64_t num_tokens, int64_t page_size) {
    check::dim(op, "req_pool_indices", inputs.req_pool_indices, 1);
    check_num_tokens(op, num_tokens);
    check::at_least(op, "max_seq_len", inputs.max_seq_len, 0);
    const int32_t page_shift = check_page_size(op, page_size);
    const int64_t num_rows = inputs.req_pool_indices.size(0);
    const at::TensorOptions int32 = inputs.req_pool_indices.options().dtype(at::kInt);
    const at::TensorOptions int64 = int32.dtype(at::kLong);
    const auto exists = [&](const char* name, const at::Tensor& table) {
        check::dim(op, name, table, 2);
        return table.size(1) != 0;
    };
    const auto pages = [&](const char* name, const at::Tensor& table, int64_t ratio) {
        const int64_t columns = exists(name, table) ? page_columns(inputs.max_seq_len, ratio, page_shift) : 0;
        return at::empty({num_rows, columns}, int32);
    };
    const int64_t c4_groups = group_capacity(num_tokens, num_rows, kRatioC4);
    const int64_t c128_groups = group_capacity(num_tokens, num_rows, kRatioC128);
    return MetadataTensors{at::empty({c4_groups}, int64),
                           at::empty({c128_groups}, int64),
                           at::empty({exists("c4_table", tables.c4) ? c4_groups : 0}, int32),
                           at::empty({exists("c128_table", tables.c128) ? c128_groups : 0}, int32),
                           at::empty({num_rows}, int32),
                           at::empty({num_rows}, int32),
                           at::empty({num_rows + 1}, int32),
                           at::empty({num_tokens}, int64),
                           at::empty({num_rows}, int32),
                           pages("swa_table", tables.swa, 1),
                           pages("c4_table", tables.c4, kRatioC4),
                           pages("c128_table", tables.c128, kRatioC128),
                           pages("c4_state_table", tables.c4_state, 1),
                           pages("c128_state_table", tables.c128_state, 1)};
}

TensorTuple<14> as_results(MetadataTensors out) {
    return {std::move(out.positions_c4),
            std::move(out.positions_c128),
            std::move(out.c4_loc),
            std::move(out.c128_loc),
            std::move(out.start_pos),
            std::move(out.seqused),
            std::move(out.cu_seqlens),
            std::move(out.positions),
            std::move(out.kv_lens),
            std::move(out.swa_page_table),
            std::move(out.c4_page_table),
            std::move(out.c128_page_table),
            std::move(out.c4_state_page_table),
            std::move(out.c128_state_page_table)};
}

}  // namespace dsv4
