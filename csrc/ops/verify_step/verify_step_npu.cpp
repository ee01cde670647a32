#include <torch/library.h>

#include "ops/verify_step/verify_step.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_verify_step.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "verify_step";

void run(const StepInputs& inputs, const SlotTables& tables, const RopeTables& rope, int64_t page_size, int64_t window,
         const SlotTensors& slots, const MetadataTensors& metadata, const GroupRopeTensors& rows) {
    VerifyStepParams p = check_verify_step(inputs, tables, rope, page_size, window, slots, metadata, rows);
    check::device_step(kOp, p.rows);
    TORCH_CHECK_VALUE(p.rope_dim <= kMaxRopeDim, kOp, ": rope_cos has rows of ", p.rope_dim, ", expected at most ",
                      kMaxRopeDim, " on a device");
    p.rows.max_seq_len = covered_length(p.metadata, p.rows.max_seq_len);
    // The uniform form has no widths to read.
    const at::Tensor widths = inputs.operand().value_or(inputs.seq_lens);
    const std::array<at::Tensor, 11> read{tables.full,
                                          tables.swa,
                                          tables.c4,
                                          tables.c128,
                                          tables.c4_state,
                                          tables.c128_state,
                                          inputs.req_pool_indices,
                                          inputs.seq_lens,
                                          widths,
                                          rope.cos,
                                          rope.sin};
    const MetadataTensors& m = metadata;
    const std::array<at::Tensor, 24> written{slots.out_full_loc,
                                             slots.out_swa_loc,
                                             slots.out_c4_loc,
                                             slots.out_c128_loc,
                                             slots.out_c4_state_loc,
                                             slots.out_c128_state_loc,
                                             m.positions_c4,
                                             m.positions_c128,
                                             m.c4_loc,
                                             m.c128_loc,
                                             m.start_pos,
                                             m.seqused,
                                             m.cu_seqlens,
                                             m.positions,
                                             m.kv_lens,
                                             m.swa_page_table,
                                             m.c4_page_table,
                                             m.c128_page_table,
                                             m.c4_state_page_table,
                                             m.c128_state_page_table,
                                             rows.c4_cos,
                                             rows.c4_sin,
                                             rows.c128_cos,
                                             rows.c128_sin};
    npu::launch(kOp, {read[0],     read[1],     read[2],     read[3],     read[4],     read[5],     read[6],
                      read[7],     read[8],     read[9],     read[10],    written[0],  written[1],  written[2],
                      written[3],  written[4],  written[5],  written[6],  written[7],  written[8],  written[9],
                      written[10], written[11], written[12], written[13], written[14], written[15], written[16],
                      written[17], written[18], written[19], written[20], written[21], written[22], written[23]},
                blocks_for(verify_step_bytes(p), kGrainBytes, npu::vector_cores(tables.full)),
                [p, from = npu::addresses(read), to = npu::addresses(written), errors = npu::error_lanes(tables.full)](
                    uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(verify_step)(
                        blocks, stream, from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7], from[8],
                        from[9], from[10], to[0], to[1], to[2], to[3], to[4], to[5], to[6], to[7], to[8], to[9], to[10],
                        to[11], to[12], to[13], to[14], to[15], to[16], to[17], to[18], to[19], to[20], to[21], to[22],
                        to[23], errors, &p);
                });
}

void verify_step_out_npu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                         const at::Tensor& c128_table, const at::Tensor& c4_state_table,
                         const at::Tensor& c128_state_table, const at::Tensor& req_pool_indices,
                         const at::Tensor& seq_lens, const std::optional<at::Tensor>& num_draft_tokens,
                         const at::Tensor& rope_cos, const at::Tensor& rope_sin, int64_t width, int64_t max_seq_len,
                         int64_t page_size, int64_t window, int64_t max_context_len, const at::Tensor& out_full_loc,
                         const at::Tensor& out_swa_loc, const at::Tensor& out_c4_loc, const at::Tensor& out_c128_loc,
                         const at::Tensor& out_c4_state_loc, const at::Tensor& out_c128_state_loc,
                         const at::Tensor& positions_c4, const at::Tensor& positions_c128, const at::Tensor& c4_loc,
                         const at::Tensor& c128_loc, const at::Tensor& start_pos, const at::Tensor& seqused,
                         const at::Tensor& cu_seqlens, const at::Tensor& positions, const at::Tensor& kv_lens,
                         const at::Tensor& swa_page_table, const at::Tensor& c4_page_table,
                         const at::Tensor& c128_page_table, const at::Tensor& c4_state_page_table,
                         const at::Tensor& c128_state_page_table, const at::Tensor& c4_cos, const at::Tensor& c4_sin,
                         const at::Tensor& c128_cos, const at::Tensor& c128_sin) {
    run(verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_seq_len, max_context_len),
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}, {rope_cos, rope_sin},
        page_size, window, {out_full_loc, out_swa_loc, out_c4_loc, out_c128_loc, out_c4_state_loc, out_c128_state_loc},
        {positions_c4, positions_c128, c4_loc, c128_loc, start_pos, seqused, cu_seqlens, positions, kv_lens,
         swa_page_table, c4_page_table, c128_page_table, c4_state_page_table, c128_state_page_table},
        {c4_cos, c4_sin, c128_cos, c128_sin});
}

using TwentyFour =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor,
               at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor,
               at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

TwentyFour verify_step_npu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                           const at::Tensor& c128_table, const at::Tensor& c4_state_table,
                           const at::Tensor& c128_state_table, const at::Tensor& req_pool_indices,
                           const at::Tensor& seq_lens, const std::optional<at::Tensor>& num_draft_tokens,
                           const at::Tensor& rope_cos, const at::Tensor& rope_sin, int64_t width, int64_t num_tokens,
                           int64_t max_seq_len, int64_t page_size, int64_t window, int64_t max_context_len) {
    const StepInputs inputs =
        verify_inputs(req_pool_indices, seq_lens, num_draft_tokens, width, max_seq_len, max_context_len);
    const SlotTables tables{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
    const RopeTables rope{rope_cos, rope_sin};
    MetadataTensors m = empty_step_metadata(
        kOp, inputs, {swa_table, c4_table, c128_table, c4_state_table, c128_state_table}, num_tokens, page_size);
    SlotTensors s =
        empty_step_slots(kOp, req_pool_indices, tables, num_tokens, m.positions_c4.size(0), m.positions_c128.size(0));
    GroupRopeTensors r = empty_group_rope(rope, m);
    run(inputs, tables, rope, page_size, window, s, m, r);
    return {std::move(s.out_full_loc),
            std::move(s.out_swa_loc),
            std::move(s.out_c4_loc),
            std::move(s.out_c128_loc),
            std::move(s.out_c4_state_loc),
            std::move(s.out_c128_state_loc),
            std::move(m.positions_c4),
            std::move(m.positions_c128),
            std::move(m.c4_loc),
            std::move(m.c128_loc),
            std::move(m.start_pos),
            std::move(m.seqused),
            std::move(m.cu_seqlens),
            std::move(m.positions),
            std::move(m.kv_lens),
            std::move(m.swa_page_table),
            std::move(m.c4_page_table),
            std::move(m.c128_page_table),
            std::move(m.c4_state_page_table),
            std::move(m.c128_state_page_table),
            std::move(r.c4_cos),
            std::move(r.c4_sin),
            std::move(r.c128_cos),
            std::move(r.c128_sin)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    m.impl("verify_step", &verify_step_npu);
    m.impl("verify_step.out", &verify_step_out_npu);
}

}  // namespace dsv4
