#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/draft_steps/draft_steps_index.h"

namespace dsv4 {

// Slots come from a reservation, or from a request table at the drafts' positions.
struct DraftStepsInputs {
    const at::Tensor& seq_lens;                         // [B]
    const std::optional<at::Tensor>& reservation;       // [B * topk * S] or longer
    const std::optional<at::Tensor>& req_pool_indices;  // [B], with table
    const std::optional<at::Tensor>& table;             // [max_requests, columns]
    const at::Tensor& rope_cos;                         // [max_pos, D]
    const at::Tensor& rope_sin;
    int64_t topk;
    int64_t num_steps;
    int64_t max_context_len;
};

struct DraftStepsOutputs {
    at::Tensor slots;      // [S, N] int32
    at::Tensor positions;  // [S, N] int64
    at::Tensor kv_lens;    // [S, N] int32
    at::Tensor cos;        // [S, N, D]
    at::Tensor sin;
};

// Checks every argument of draft_steps.out but the values in tensors.
DraftStepsParams check_draft_steps(const DraftStepsInputs& inputs, const DraftStepsOutputs& out);

DraftStepsOutputs empty_draft_steps(const DraftStepsInputs& inputs, int64_t num_entries);

}  // namespace dsv4
