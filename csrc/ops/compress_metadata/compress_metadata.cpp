#include "ops/compress_metadata/compress_metadata.h"

#include <torch/library.h>

#include "torch/check.h"

namespace dsv4 {

CompressMetadataParams check_compress_metadata(const StepInputs& inputs, const MetadataTables& tables,
                                               int64_t page_size, int64_t window, const MetadataTensors& out) {
    constexpr char kOp[] = "compress_metadata";
    check::dim(kOp, "positions", out.positions, 1);
    const StepRowsParams rows = check_step_inputs(kOp, inputs, tables.swa, out.positions.size(0));
    return CompressMetadataParams{rows, check_step_metadata(kOp, rows, inputs, tables, page_size, window, out)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "compress_metadata(Tensor swa_table, Tensor c4_table, Tensor c128_table, Tensor c4_state_table,"
        " Tensor c128_state_table, Tensor req_pool_indices, Tensor seq_lens, Tensor? prefix_lens,"
        " Tensor? num_draft_tokens, int form, int width, SymInt num_tokens, SymInt max_seq_len, int page_size,"
        " int window, int max_context_len)"
        " -> (Tensor positions_c4, Tensor positions_c128, Tensor c4_loc, Tensor c128_loc, Tensor start_pos,"
        " Tensor seqused, Tensor cu_seqlens, Tensor positions, Tensor kv_lens, Tensor swa_page_table,"
        " Tensor c4_page_table, Tensor c128_page_table, Tensor c4_state_page_table, Tensor c128_state_page_table)");
    m.def(
        "compress_metadata.out(Tensor swa_table, Tensor c4_table, Tensor c128_table, Tensor c4_state_table,"
        " Tensor c128_state_table, Tensor req_pool_indices, Tensor seq_lens, Tensor? prefix_lens,"
        " Tensor? num_draft_tokens, int form, int width, int max_seq_len, int page_size, int window,"
        " int max_context_len, *, Tensor(a!) positions_c4, Tensor(b!) positions_c128, Tensor(c!) c4_loc,"
        " Tensor(d!) c128_loc, Tensor(e!) start_pos, Tensor(f!) seqused, Tensor(g!) cu_seqlens, Tensor(h!) positions,"
        " Tensor(i!) kv_lens, Tensor(j!) swa_page_table, Tensor(k!) c4_page_table, Tensor(l!) c128_page_table,"
        " Tensor(m!) c4_state_page_table, Tensor(n!) c128_state_page_table) -> ()");
}

}  // namespace dsv4
