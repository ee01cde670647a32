#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>

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

// The two forms over a backend's run(params, inputs, outputs).
template <auto run>
struct AdvanceStepForms {
    static void out(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& req_pool_indices,
                    const at::Tensor& seq_lens, const at::Tensor& accepted_lens, const at::Tensor& token_ids,
                    const std::optional<at::Tensor>& cu_seqlens, const std::optional<at::Tensor>& hidden_states,
                    int64_t width, int64_t max_context_len, const at::Tensor& next_seq_lens,
                    const at::Tensor& extend_lens, const at::Tensor& next_token_ids, const at::Tensor& positions,
                    const at::Tensor& out_full_loc, const at::Tensor& out_swa_loc, const at::Tensor& sampled_index,
                    const std::optional<at::Tensor>& next_hidden) {
        const AdvanceInputs inputs{full_table, swa_table,  req_pool_indices, seq_lens, accepted_lens,
                                   token_ids,  cu_seqlens, hidden_states,    width,    max_context_len};
        const AdvanceOutputs outputs{next_seq_lens, extend_lens, next_token_ids, positions,
                                     out_full_loc,  out_swa_loc, sampled_index,  next_hidden};
        run(check_advance_step(inputs, outputs), inputs, outputs);
    }

    static AdvanceResults functional(const at::Tensor& full_table, const at::Tensor& swa_table,
                                     const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                                     const at::Tensor& accepted_lens, const at::Tensor& token_ids,
                                     const std::optional<at::Tensor>& cu_seqlens,
                                     const std::optional<at::Tensor>& hidden_states, int64_t width,
                                     int64_t max_context_len) {
        const AdvanceInputs inputs{full_table, swa_table,  req_pool_indices, seq_lens, accepted_lens,
                                   token_ids,  cu_seqlens, hidden_states,    width,    max_context_len};
        AdvanceOutputs outputs = empty_advance_outputs(inputs);
        run(check_advance_step(inputs, outputs), inputs, outputs);
        return advance_results(inputs, std::move(outputs));
    }
};

template <auto run>
void register_advance_step(torch::Library& library) {
    library.impl("advance_step", &AdvanceStepForms<run>::functional);
    library.impl("advance_step.out", &AdvanceStepForms<run>::out);
}

}  // namespace dsv4
