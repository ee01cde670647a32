#include <torch/library.h>

#include "ops/compress_metadata/compress_metadata.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_compress_metadata.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "compress_metadata";

using OptionalTensor = std::optional<at::Tensor>;

void run(const StepInputs& inputs, const MetadataTables& tables, int64_t page_size, int64_t window,
         const MetadataTensors& out) {
    CompressMetadataParams p = check_compress_metadata(inputs, tables, page_size, window, out);
    check::device_step(kOp, p.rows);
    p.rows.max_seq_len = covered_length(p.metadata, p.rows.max_seq_len);
    // Forms without an operand do not read it.
    const at::Tensor operand = inputs.operand().value_or(inputs.seq_lens);
    const std::array<at::Tensor, 8> read{
        tables.swa,      tables.c4, tables.c128, tables.c4_state, tables.c128_state, inputs.req_pool_indices,
        inputs.seq_lens, operand};
    const std::array<at::Tensor, 14> written{out.positions_c4,
                                             out.positions_c128,
                                             out.c4_loc,
                                             out.c128_loc,
                                             out.start_pos,
                                             out.seqused,
                                             out.cu_seqlens,
                                             out.positions,
                                             out.kv_lens,
                                             out.swa_page_table,
                                             out.c4_page_table,
                                             out.c128_page_table,
                                             out.c4_state_page_table,
                                             out.c128_state_page_table};
    npu::launch(kOp, {read[0],    read[1],    read[2],     read[3],     read[4],     read[5],    read[6],    read[7],
                      written[0], written[1], written[2],  written[3],  written[4],  written[5], written[6], written[7],
                      written[8], written[9], written[10], written[11], written[12], written[13]},
                blocks_for(metadata_bytes(p.rows, p.metadata), kGrainBytes, npu::vector_cores(tables.swa)),
                [p, from = npu::addresses(read), to = npu::addresses(written), errors = npu::error_lanes(tables.swa)](
                    uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(compress_metadata)(blocks, stream, from[0], from[1], from[2], from[3],
                                                                  from[4], from[5], from[6], from[7], to[0], to[1],
                                                                  to[2], to[3], to[4], to[5], to[6], to[7], to[8],
                                                                  to[9], to[10], to[11], to[12], to[13], errors, &p);
                });
}

void compress_metadata_out_npu(const at::Tensor& swa_table, const at::Tensor& c4_table, const at::Tensor& c128_table,
                               const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                               const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                               const OptionalTensor& prefix_lens, const OptionalTensor& num_draft_tokens, int64_t form,
                               int64_t width, int64_t max_seq_len, int64_t page_size, int64_t window,
                               int64_t max_context_len, const at::Tensor& positions_c4,
                               const at::Tensor& positions_c128, const at::Tensor& c4_loc, const at::Tensor& c128_loc,
                               const at::Tensor& start_pos, const at::Tensor& seqused, const at::Tensor& cu_seqlens,
                               const at::Tensor& positions, const at::Tensor& kv_lens, const at::Tensor& swa_page_table,
                               const at::Tensor& c4_page_table, const at::Tensor& c128_page_table,
                               const at::Tensor& c4_state_page_table, const at::Tensor& c128_state_page_table) {
    run({req_pool_indices, seq_lens, prefix_lens, num_draft_tokens, form, width, max_seq_len, max_context_len},
        {swa_table, c4_table, c128_table, c4_state_table, c128_state_table}, page_size, window,
        {positions_c4, positions_c128, c4_loc, c128_loc, start_pos, seqused, cu_seqlens, positions, kv_lens,
         swa_page_table, c4_page_table, c128_page_table, c4_state_page_table, c128_state_page_table});
}

using Fourteen = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor,
                            at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Fourteen compress_metadata_npu(const at::Tensor& swa_table, const at::Tensor& c4_table, const at::Tensor& c128_table,
                               const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                               const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                               const OptionalTensor& prefix_lens, const OptionalTensor& num_draft_tokens, int64_t form,
                               int64_t width, int64_t num_tokens, int64_t max_seq_len, int64_t page_size,
                               int64_t window, int64_t max_context_len) {
    const StepInputs inputs{req_pool_indices, seq_lens,       prefix_lens, num_draft_tokens, form, width,
                            max_seq_len,      max_context_len};
    const MetadataTables tables{swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
    MetadataTensors out = empty_step_metadata(kOp, inputs, tables, num_tokens, page_size);
    run(inputs, tables, page_size, window, out);
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

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    m.impl("compress_metadata", &compress_metadata_npu);
    m.impl("compress_metadata.out", &compress_metadata_out_npu);
}

}  // namespace dsv4
