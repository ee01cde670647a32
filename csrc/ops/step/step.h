// A step's tensors as every backend takes them, and its checks.
#pragma once

#include <torch/library.h>

#include <algorithm>
#include <bit>

#include "ops/step/step_index.h"
#include "torch/empty_tensors.h"
#include "torch/pool_addresses.h"

namespace dsv4 {

// Tensors of a step. Undefined where nothing is given or asked for.
struct StepTensors {
    std::array<at::Tensor, kNumPools> tables;
    at::Tensor req_pool_indices;  // [B]
    at::Tensor seq_lens;          // [B]
    at::Tensor operand;           // [B], or [B + 1] offsets
    at::Tensor rope_cos;          // [max_pos, D] float32
    at::Tensor rope_sin;
    std::array<at::Tensor, kNumTokenRope> token_rope;  // [max_pos, D], by field from kFieldMainCos on
    std::array<at::Tensor, kNumStepFields> fields;
};

// Arguments of the op as the dispatcher hands them over.
struct StepArguments {
    at::TensorList tables;
    at::IntArrayRef addressing;
    const std::optional<at::Tensor>& req_pool_indices;
    const at::Tensor& seq_lens;
    const std::optional<at::Tensor>& operand;
    const std::optional<at::Tensor>& rope_cos;
    const std::optional<at::Tensor>& rope_sin;
    int64_t form;
    int64_t width;
    int64_t window;
    int64_t max_context_len;
    at::TensorList out;
    int64_t fields;  // bit f: out has field f
    at::IntArrayRef dummy_slots;
    at::IntArrayRef dummy_pages;
    int64_t window_block;
    bool closes_cu_seqlens;
    std::array<at::Tensor, kNumTokenRope> token_rope = {};  // main_rope_cos ..; undefined where it is not given
};

// What describes the rows of a step.
struct StepRowArguments {
    const at::Tensor& seq_lens;
    const std::optional<at::Tensor>& operand;
    const std::optional<at::Tensor>& req_pool_indices;
    int64_t form;
    int64_t width;
};

extern const char* const kStepFieldNames[kNumStepFields];
extern const char* const kTokenRopeNames[kNumTokenRope];

// What callers call the operand of a form, or its width.
const char* step_operand_name(int32_t form);

// Checks what describes the rows. Tokens, requests and lengths are not limited yet.
StepRowsParams check_step_rows(const char* op, const StepRowArguments& arguments, StepTensors& tensors);

// Checks every argument but the values in tensors, and sorts them by name.
StepParams check_step(const StepArguments& arguments, StepTensors& tensors);

// Sizes in `buffers` that stand for as many entries as groups of a ratio are completed
// (python/dsv4_npu_ops/layout/buffers.py).
constexpr int64_t kGroupsOf4 = -4;
constexpr int64_t kGroupsOf128 = -128;

// Buffers of a step; groups are counted by rows on the host, where there are such sizes.
std::vector<at::Tensor> new_step_buffers(at::IntArrayRef buffers, const at::Tensor& seq_lens,
                                         const std::optional<at::Tensor>& host_seq_lens,
                                         const std::optional<at::Tensor>& host_operand, int64_t form, int64_t width);

// Registers the op over a backend's run(params, tensors): into given buffers, and into new ones, of which those behind
// the fields that are asked for stay as they are.
template <auto run>
void register_step(torch::Library& library) {
    library.impl("step", [](at::TensorList tables, at::IntArrayRef addressing,
                            const std::optional<at::Tensor>& req_pool_indices, const at::Tensor& seq_lens,
                            const std::optional<at::Tensor>& operand, const std::optional<at::Tensor>& rope_cos,
                            const std::optional<at::Tensor>& rope_sin, int64_t form, int64_t width, int64_t window,
                            int64_t max_context_len, at::TensorList out, int64_t fields, at::IntArrayRef dummy_slots,
                            at::IntArrayRef dummy_pages, int64_t window_block, bool closes_cu_seqlens,
                            const std::optional<at::Tensor>& main_rope_cos,
                            const std::optional<at::Tensor>& main_rope_sin,
                            const std::optional<at::Tensor>& compress_rope_cos,
                            const std::optional<at::Tensor>& compress_rope_sin) {
        const at::Tensor none;
        StepTensors tensors;
        const StepParams p = check_step(
            {tables, addressing, req_pool_indices, seq_lens, operand, rope_cos, rope_sin, form, width, window,
             max_context_len, out, fields, dummy_slots, dummy_pages, window_block, closes_cu_seqlens,
             {main_rope_cos.value_or(none), main_rope_sin.value_or(none), compress_rope_cos.value_or(none),
              compress_rope_sin.value_or(none)}},
            tensors);
        run(p, tensors);
    });
    library.impl("step.new", [](at::TensorList tables, at::IntArrayRef addressing,
                                const std::optional<at::Tensor>& req_pool_indices, const at::Tensor& seq_lens,
                                const std::optional<at::Tensor>& operand, const std::optional<at::Tensor>& rope_cos,
                                const std::optional<at::Tensor>& rope_sin, int64_t form, int64_t width, int64_t window,
                                int64_t max_context_len, at::IntArrayRef buffers, int64_t fields,
                                at::IntArrayRef dummy_slots, at::IntArrayRef dummy_pages, int64_t window_block,
                                bool closes_cu_seqlens, const std::optional<at::Tensor>& main_rope_cos,
                                const std::optional<at::Tensor>& main_rope_sin,
                                const std::optional<at::Tensor>& compress_rope_cos,
                                const std::optional<at::Tensor>& compress_rope_sin,
                                const std::optional<at::Tensor>& host_seq_lens,
                                const std::optional<at::Tensor>& host_operand) {
        const at::Tensor none;
        std::vector<at::Tensor> made = new_step_buffers(buffers, seq_lens, host_seq_lens, host_operand, form, width);
        const auto asked = static_cast<size_t>(std::popcount(static_cast<uint64_t>(fields)));
        StepTensors tensors;
        const StepParams p =
            check_step({tables, addressing, req_pool_indices, seq_lens, operand, rope_cos, rope_sin, form, width, window,
                        max_context_len, at::TensorList(made).slice(0, std::min(made.size(), asked)), fields,
                        dummy_slots, dummy_pages, window_block, closes_cu_seqlens,
                        {main_rope_cos.value_or(none), main_rope_sin.value_or(none), compress_rope_cos.value_or(none),
                         compress_rope_sin.value_or(none)}},
                       tensors);
        run(p, tensors);
        return made;
    });
}

}  // namespace dsv4
