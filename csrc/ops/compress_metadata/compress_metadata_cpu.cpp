#include <torch/library.h>

#include "cpu/step_metadata_loops.h"
#include "ops/compress_metadata/compress_metadata.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "compress_metadata";

using OptionalTensor = std::optional<at::Tensor>;

void run(const StepInputs& inputs, const MetadataTables& tables, int64_t page_size, int64_t window,
         const MetadataTensors& out) {
    const CompressMetadataParams p = check_compress_metadata(inputs, tables, page_size, window, out);
    const cpu::ScannedStep step = cpu::scan_step(kOp, p.rows, inputs);
    cpu::check_metadata_capacity(kOp, step, p.metadata);
    cpu::write_step_metadata(step, p.metadata, tables, out);
}

void compress_metadata_out_cpu(const at::Tensor& swa_table, const at::Tensor& c4_table, const at::Tensor& c128_table,
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

Fourteen compress_metadata_cpu(const at::Tensor& swa_table, const at::Tensor& c4_table, const at::Tensor& c128_table,
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

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) {
    m.impl("compress_metadata", &compress_metadata_cpu);
    m.impl("compress_metadata.out", &compress_metadata_out_cpu);
}

}  // namespace dsv4
