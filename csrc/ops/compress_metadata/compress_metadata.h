#pragma once

#include <torch/library.h>

#include "ops/compress_metadata/compress_metadata_index.h"
#include "torch/step_tensors.h"

namespace dsv4 {

// Checks every argument of compress_metadata.out but the values in tensors.
CompressMetadataParams check_compress_metadata(const StepInputs& inputs, const MetadataTables& tables,
                                               int64_t page_size, int64_t window, const MetadataTensors& out);

// The two forms over a backend's run(params, inputs, tables, out).
template <auto run>
struct CompressMetadataForms {
    static void out(const at::Tensor& swa_table, const at::Tensor& c4_table, const at::Tensor& c128_table,
                    const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                    const at::Tensor& req_pool_indices, const at::Tensor& seq_lens,
                    const std::optional<at::Tensor>& prefix_lens, const std::optional<at::Tensor>& num_draft_tokens,
                    int64_t form, int64_t width, int64_t max_seq_len, int64_t page_size, int64_t window,
                    int64_t max_context_len, const at::Tensor& positions_c4, const at::Tensor& positions_c128,
                    const at::Tensor& c4_loc, const at::Tensor& c128_loc, const at::Tensor& start_pos,
                    const at::Tensor& seqused, const at::Tensor& cu_seqlens, const at::Tensor& positions,
                    const at::Tensor& kv_lens, const at::Tensor& swa_page_table, const at::Tensor& c4_page_table,
                    const at::Tensor& c128_page_table, const at::Tensor& c4_state_page_table,
                    const at::Tensor& c128_state_page_table) {
        check_and_run({req_pool_indices, seq_lens, prefix_lens, num_draft_tokens, form, width, max_seq_len,
                       max_context_len},
                      {swa_table, c4_table, c128_table, c4_state_table, c128_state_table}, page_size, window,
                      {positions_c4, positions_c128, c4_loc, c128_loc, start_pos, seqused, cu_seqlens, positions,
                       kv_lens, swa_page_table, c4_page_table, c128_page_table, c4_state_page_table,
                       c128_state_page_table});
    }

    static TensorTuple<14> functional(const at::Tensor& swa_table, const at::Tensor& c4_table,
                                      const at::Tensor& c128_table, const at::Tensor& c4_state_table,
                                      const at::Tensor& c128_state_table, const at::Tensor& req_pool_indices,
                                      const at::Tensor& seq_lens, const std::optional<at::Tensor>& prefix_lens,
                                      const std::optional<at::Tensor>& num_draft_tokens, int64_t form, int64_t width,
                                      int64_t num_tokens, int64_t max_seq_len, int64_t page_size, int64_t window,
                                      int64_t max_context_len) {
        const StepInputs inputs{req_pool_indices, seq_lens,       prefix_lens, num_draft_tokens, form, width,
                                max_seq_len,      max_context_len};
        const MetadataTables tables{swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
        MetadataTensors out = empty_step_metadata("compress_metadata", inputs, tables, num_tokens, page_size);
        check_and_run(inputs, tables, page_size, window, out);
        return as_results(std::move(out));
    }

  private:
    static void check_and_run(const StepInputs& inputs, const MetadataTables& tables, int64_t page_size,
                              int64_t window, const MetadataTensors& out) {
        run(check_compress_metadata(inputs, tables, page_size, window, out), inputs, tables, out);
    }
};

template <auto run>
void register_compress_metadata(torch::Library& library) {
    library.impl("compress_metadata", &CompressMetadataForms<run>::functional);
    library.impl("compress_metadata.out", &CompressMetadataForms<run>::out);
}

}  // namespace dsv4
