#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>

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

// The two forms over a backend's run(params, inputs, outputs).
template <auto run>
struct DraftStepsForms {
    static void out(const at::Tensor& seq_lens, const std::optional<at::Tensor>& reservation,
                    const std::optional<at::Tensor>& req_pool_indices, const std::optional<at::Tensor>& table,
                    const at::Tensor& rope_cos, const at::Tensor& rope_sin, int64_t topk, int64_t num_steps,
                    int64_t max_context_len, const at::Tensor& slots, const at::Tensor& positions,
                    const at::Tensor& kv_lens, const at::Tensor& cos, const at::Tensor& sin) {
        const DraftStepsInputs inputs{seq_lens, reservation, req_pool_indices, table,          rope_cos,
                                      rope_sin, topk,        num_steps,        max_context_len};
        const DraftStepsOutputs outputs{slots, positions, kv_lens, cos, sin};
        run(check_draft_steps(inputs, outputs), inputs, outputs);
    }

    static std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> functional(
        const at::Tensor& seq_lens, const std::optional<at::Tensor>& reservation,
        const std::optional<at::Tensor>& req_pool_indices, const std::optional<at::Tensor>& table,
        const at::Tensor& rope_cos, const at::Tensor& rope_sin, int64_t topk, int64_t num_steps, int64_t num_entries,
        int64_t max_context_len) {
        const DraftStepsInputs inputs{seq_lens, reservation, req_pool_indices, table,          rope_cos,
                                      rope_sin, topk,        num_steps,        max_context_len};
        DraftStepsOutputs outputs = empty_draft_steps(inputs, num_entries);
        run(check_draft_steps(inputs, outputs), inputs, outputs);
        return {std::move(outputs.slots), std::move(outputs.positions), std::move(outputs.kv_lens),
                std::move(outputs.cos), std::move(outputs.sin)};
    }
};

template <auto run>
void register_draft_steps(torch::Library& library) {
    library.impl("draft_steps", &DraftStepsForms<run>::functional);
    library.impl("draft_steps.out", &DraftStepsForms<run>::out);
}

}  // namespace dsv4
