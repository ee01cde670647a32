// Tensors of a step as the ops pass them around, their checks and their allocation; the same for every op and backend.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "common/step_outputs.h"
#include "torch/tensor_tuple.h"

namespace dsv4 {

// What describes the rows of a step. Lengths and indices [B], int32 or int64 each.
struct StepInputs {
    const at::Tensor& req_pool_indices;
    const at::Tensor& seq_lens;
    const std::optional<at::Tensor>& prefix_lens;       // prefill only
    const std::optional<at::Tensor>& num_draft_tokens;  // ragged verify only: the widths
    int64_t form;
    int64_t width;  // uniform verify only
    int64_t max_seq_len;
    int64_t max_context_len;

    const std::optional<at::Tensor>& operand() const { return form == kPrefill ? prefix_lens : num_draft_tokens; }
};

// Committed lengths with one width for all rows, or with a width each when num_draft_tokens is given.
StepInputs verify_inputs(const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                         const std::optional<at::Tensor>& num_draft_tokens, int64_t width, int64_t max_seq_len,
                         int64_t max_context_len);

// The request tables that page tables are made of: int32 [max_requests, columns], columns 0 when the pool is missing.
struct MetadataTables {
    const at::Tensor& swa;
    const at::Tensor& c4;
    const at::Tensor& c128;
    const at::Tensor& c4_state;
    const at::Tensor& c128_state;
};

// Outputs of compress_metadata in the order of docs/spec.md, 3.1.
struct MetadataTensors {
    at::Tensor positions_c4;    // [c4 capacity] int64
    at::Tensor positions_c128;  // [c128 capacity] int64
    at::Tensor c4_loc;          // [c4 capacity] int32 slots
    at::Tensor c128_loc;        // [c128 capacity] int32 slots
    at::Tensor start_pos;       // [B] int32
    at::Tensor seqused;         // [B] int32
    at::Tensor cu_seqlens;      // [B + 1] int32
    at::Tensor positions;       // [T] int64
    at::Tensor kv_lens;         // [B] int32
    at::Tensor swa_page_table;  // [B, columns] int32 pages, like the next four
    at::Tensor c4_page_table;
    at::Tensor c128_page_table;
    at::Tensor c4_state_page_table;
    at::Tensor c128_state_page_table;
};

// `num_tokens`: T. `max_requests` is left 0: check_step_inputs takes it from a table.
StepRowsParams check_step_rows(const char* op, const StepInputs& inputs, int64_t num_tokens);
StepRowsParams check_step_inputs(const char* op, const StepInputs& inputs, const at::Tensor& swa_table,
                                 int64_t num_tokens);

// Distance between rows of a request table, 0 for a pool that does not exist.
int64_t check_request_table(const char* op, const char* name, const at::Tensor& table, int64_t ratio,
                            const StepRowsParams& rows, const at::Tensor& req_pool_indices);

// A contiguous output of this exact shape on the device of `req_pool_indices`.
void check_step_output(const char* op, const char* name, const at::Tensor& out, at::ScalarType dtype,
                       at::IntArrayRef shape, const at::Tensor& req_pool_indices);

int32_t check_page_size(const char* op, int64_t page_size);

StepMetadataParams check_step_metadata(const char* op, const StepRowsParams& rows, const StepInputs& inputs,
                                       const MetadataTables& tables, int64_t page_size, int64_t window,
                                       const MetadataTensors& out);

MetadataTensors empty_step_metadata(const char* op, const StepInputs& inputs, const MetadataTables& tables,
                                    int64_t num_tokens, int64_t page_size);

// The outputs in their order, as an op returns them.
TensorTuple<14> as_results(MetadataTensors out);

}  // namespace dsv4
