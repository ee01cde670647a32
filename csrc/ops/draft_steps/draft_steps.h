#pragma once

#include <torch/library.h>

#include "ops/draft_steps/draft_steps_index.h"
#include "torch/pool_addresses.h"

namespace dsv4 {

// Slots come from a reservation, or from a pool of the request tables at the drafts' positions. Undefined where nothing
// is given.
struct DraftStepsTensors {
    std::array<at::Tensor, kNumPools> tables;
    at::Tensor reservation;       // [B * topk * S] int32 or longer
    at::Tensor req_pool_indices;  // [B]
    at::Tensor seq_lens;          // [B]
    at::Tensor rope_cos;          // [max_pos, D]
    at::Tensor rope_sin;
    at::Tensor slots;      // [S, N] int32
    at::Tensor positions;  // [S, N] int64
    at::Tensor kv_lens;    // [S, N] int32
    at::Tensor cos;        // [S, N, D]
    at::Tensor sin;
};

// Arguments of the op as the dispatcher hands them over, beside its outputs.
struct DraftStepsArguments {
    at::TensorList tables;
    at::IntArrayRef addressing;
    const std::optional<at::Tensor>& req_pool_indices;
    const std::optional<at::Tensor>& reservation;
    const at::Tensor& seq_lens;
    const at::Tensor& rope_cos;
    const at::Tensor& rope_sin;
    int64_t pool;
    int64_t topk;
    int64_t num_steps;
    int64_t max_context_len;
    int64_t dummy_slot;
};

// Checks every argument but the values in tensors, and keeps the tensors beside the outputs that `tensors` has already.
DraftStepsParams check_draft_steps(const DraftStepsArguments& arguments, DraftStepsTensors& tensors);

// Arguments of draft_steps.apart. Outputs have a tensor for each step; those of RoPE rows first all steps' cosines of a
// base, then its sines.
struct DraftsApartArguments {
    const at::Tensor& block_table;     // [rows, columns]
    const at::Tensor& last_positions;  // [B]
    const at::Tensor& seq_lens;        // [B]
    at::TensorList rope;               // cosines and sines of each base, [max_pos, D]
    int64_t block_size;
    int64_t max_context_len;
    int64_t dummy_slot;
    at::TensorList slots;       // [N] int32, or [N, 2]
    at::TensorList kv_lens;     // [N] int32
    at::TensorList cu_seqlens;  // [N + 1] int32, or no tensors
    at::TensorList rope_rows;   // [N, D]
};

DraftsApartParams check_drafts_apart(const DraftsApartArguments& arguments);

// Where the rows of a base lie in rope_rows, sines behind cosines.
inline size_t rope_rows_of(int64_t base, int64_t table, int64_t step, const DraftsApartParams& p) {
    return static_cast<size_t>((2 * base + table) * p.steps.num_steps + step);
}

// Registers the form apart over a backend's run(params, arguments).
template <auto run>
void register_drafts_apart(torch::Library& library) {
    library.impl("draft_steps.apart",
                 [](const at::Tensor& block_table, const at::Tensor& last_positions, const at::Tensor& seq_lens,
                    at::TensorList rope, int64_t block_size, int64_t max_context_len, int64_t dummy_slot,
                    at::TensorList slots, at::TensorList kv_lens, at::TensorList cu_seqlens, at::TensorList rope_rows) {
                     const DraftsApartArguments arguments{block_table, last_positions,  seq_lens,   rope,
                                                          block_size,  max_context_len, dummy_slot, slots,
                                                          kv_lens,     cu_seqlens,      rope_rows};
                     run(check_drafts_apart(arguments), arguments);
                 });
}

// Registers the op over a backend's run(params, tensors).
template <auto run>
void register_draft_steps(torch::Library& library) {
    library.impl(
        "draft_steps",
        [](at::TensorList tables, at::IntArrayRef addressing, const std::optional<at::Tensor>& req_pool_indices,
           const std::optional<at::Tensor>& reservation, const at::Tensor& seq_lens, const at::Tensor& rope_cos,
           const at::Tensor& rope_sin, int64_t pool, int64_t topk, int64_t num_steps, int64_t max_context_len,
           int64_t dummy_slot, const at::Tensor& slots, const at::Tensor& positions, const at::Tensor& kv_lens,
           const at::Tensor& cos, const at::Tensor& sin) {
            DraftStepsTensors tensors;
            tensors.slots = slots;
            tensors.positions = positions;
            tensors.kv_lens = kv_lens;
            tensors.cos = cos;
            tensors.sin = sin;
            const DraftStepsParams p =
                check_draft_steps({tables, addressing, req_pool_indices, reservation, seq_lens, rope_cos, rope_sin,
                                   pool, topk, num_steps, max_context_len, dummy_slot},
                                  tensors);
            run(p, tensors);
        });
}

}  // namespace dsv4
