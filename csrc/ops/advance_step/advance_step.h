#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "ops/advance_step/advance_step_index.h"

namespace dsv4 {

struct AdvanceInputs {
    const at::Tensor& full_table;  // int32 [max_requests, columns]; 0 columns: the pool does not exist
    const at::Tensor& swa_table;
    const at::Tensor& req_pool_indices;                // [B] int32 or int64
    const at::Tensor& seq_lens;                        // [B] int32 or int64
    const at::Tensor& accepted_lens;                   // [B] int32 or int64
    const at::Tensor& token_ids;                       // [T] or [B, width], int32 or int64
    const std::optional<at::Tensor>& cu_seqlens;       // [B + 1] int32
    const std::optional<at::Tensor>& hidden_states;    // [T, ...]
    int64_t width;
    int64_t max_context_len;
};

struct AdvanceOutputs {
    at::Tensor next_seq_lens;   // [B] like seq_lens, or seq_lens itself
    at::Tensor extend_lens;     // [B] int32
    at::Tensor next_token_ids;  // [B] like token_ids
    at::Tensor positions;       // [B] int64
    at::Tensor out_full_loc;    // [B] int32, empty without the pool
    at::Tensor out_swa_loc;
    at::Tensor sampled_index;               // [B] int64
    std::optional<at::Tensor> next_hidden;  // [B, ...] like hidden_states
};

// Checks every argument of advance_step.out but the values in tensors; touches no data.
AdvanceStepParams check_advance_step(const AdvanceInputs& inputs, const AdvanceOutputs& out);

// New outputs for advance_step; without hidden_states the last one has no entries and is not an output of the kernel.
AdvanceOutputs empty_advance_outputs(const AdvanceInputs& inputs);

using AdvanceResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor,
                                  at::Tensor>;

// The outputs as the functional form returns them.
AdvanceResults advance_results(const AdvanceInputs& inputs, AdvanceOutputs&& out);

}  // namespace dsv4
