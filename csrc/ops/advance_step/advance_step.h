#pragma once

#include <torch/library.h>

#include "ops/advance_step/advance_step_index.h"
#include "torch/pool_addresses.h"

namespace dsv4 {

// Undefined where nothing is given or asked for.
struct AdvanceTensors {
    std::array<at::Tensor, kNumPools> tables;
    at::Tensor req_pool_indices;                        // [B] int32 or int64
    at::Tensor seq_lens;                                // [B] int32 or int64
    at::Tensor accepted_lens;                           // [B] int32 or int64
    at::Tensor token_ids;                               // [T] or [B, width]; without accepted_lens samples [B, n]
    at::Tensor cu_seqlens;                              // [B + 1] int32
    at::Tensor num_draft_tokens;                        // [B] int32 or int64
    at::Tensor backup_tokens;                           // [B] like token_ids
    at::Tensor hidden_states;                           // [T, ...]
    std::array<at::Tensor, kNumAdvancedFields> fields;  // see advance_step_index.h
};

// Arguments of the op as the dispatcher hands them over.
struct AdvanceArguments {
    at::TensorList tables;
    at::IntArrayRef addressing;
    const std::optional<at::Tensor>& req_pool_indices;
    const at::Tensor& seq_lens;
    const std::optional<at::Tensor>& accepted_lens;
    const at::Tensor& token_ids;
    const std::optional<at::Tensor>& cu_seqlens;
    const std::optional<at::Tensor>& num_draft_tokens;
    const std::optional<at::Tensor>& backup_tokens;
    const std::optional<at::Tensor>& hidden_states;
    int64_t width;
    int64_t max_context_len;
    bool lengths_are_final;
    at::IntArrayRef dummy_slots;
};

// Checks every argument but the values in tensors, and keeps the tensors beside the fields that `tensors` has already.
AdvanceStepParams check_advance_step(const AdvanceArguments& arguments, AdvanceTensors& tensors);

// Buffers of what is said of samples alone: next tokens, samples of each row, index of the last input kept, inputs
// rejected; and the fields that they are.
std::vector<at::Tensor> new_sample_buffers(const at::Tensor& seq_lens, const at::Tensor& token_ids);
constexpr int32_t kSampleFields[] = {kAdvancedTokens, kAdvancedCounts, kAdvancedSampled, kAdvancedRejected};

using AdvancedField = const std::optional<at::Tensor>&;

// Registers the op over a backend's run(params, tensors).
template <auto run>
void register_advance_step(torch::Library& library) {
    library.impl(
        "advance_step",
        [](at::TensorList tables, at::IntArrayRef addressing, const std::optional<at::Tensor>& req_pool_indices,
           const at::Tensor& seq_lens, const std::optional<at::Tensor>& accepted_lens, const at::Tensor& token_ids,
           const std::optional<at::Tensor>& cu_seqlens, const std::optional<at::Tensor>& num_draft_tokens,
           const std::optional<at::Tensor>& backup_tokens, const std::optional<at::Tensor>& hidden_states,
           int64_t width, int64_t max_context_len, AdvancedField next_seq_lens, AdvancedField extend_lens,
           AdvancedField next_token_ids, AdvancedField positions, AdvancedField out_full_loc, AdvancedField out_swa_loc,
           AdvancedField sampled_index, AdvancedField next_hidden_states, AdvancedField valid_counts,
           AdvancedField rejected_lens, bool lengths_are_final, at::IntArrayRef dummy_slots) {
            AdvanceTensors tensors;
            int32_t field = 0;
            for (const std::optional<at::Tensor>* given :
                 {&next_seq_lens, &extend_lens, &next_token_ids, &positions, &out_full_loc, &out_swa_loc,
                  &sampled_index, &next_hidden_states, &valid_counts, &rejected_lens}) {
                tensors.fields[field++] = given->value_or(at::Tensor());
            }
            const AdvanceStepParams p = check_advance_step(
                {tables, addressing, req_pool_indices, seq_lens, accepted_lens, token_ids, cu_seqlens, num_draft_tokens,
                 backup_tokens, hidden_states, width, max_context_len, lengths_are_final, dummy_slots},
                tensors);
            run(p, tensors);
        });
    library.impl("advance_step.samples",
                 [](const at::Tensor& seq_lens, const at::Tensor& token_ids,
                    const std::optional<at::Tensor>& cu_seqlens, const std::optional<at::Tensor>& num_draft_tokens,
                    const std::optional<at::Tensor>& backup_tokens, int64_t max_context_len, bool lengths_are_final) {
                     std::vector<at::Tensor> made = new_sample_buffers(seq_lens, token_ids);
                     AdvanceTensors tensors;
                     for (size_t i = 0; i < made.size(); ++i) {
                         tensors.fields[kSampleFields[i]] = made[i];
                     }
                     constexpr int64_t no_pools[kNumPools] = {};
                     constexpr int64_t no_slots[] = {0, 0};
                     const std::optional<at::Tensor> none;
                     const AdvanceArguments arguments{at::TensorList(),
                                                      no_pools,
                                                      none,
                                                      seq_lens,
                                                      none,
                                                      token_ids,
                                                      cu_seqlens,
                                                      num_draft_tokens,
                                                      backup_tokens,
                                                      none,
                                                      token_ids.size(1),
                                                      max_context_len,
                                                      lengths_are_final,
                                                      no_slots};
                     const AdvanceStepParams p = check_advance_step(arguments, tensors);
                     run(p, tensors);
                     return made;
                 });
}

}  // namespace dsv4
