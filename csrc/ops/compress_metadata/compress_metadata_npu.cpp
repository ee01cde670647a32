#include "ops/compress_metadata/compress_metadata.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_compress_metadata.h"

namespace dsv4 {
namespace {

void launch_compress_metadata(CompressMetadataParams p, const StepInputs& inputs, const MetadataTables& tables,
                              const MetadataTensors& out) {
    constexpr char kOp[] = "compress_metadata";
    check::device_step(kOp, p.rows);
    p.rows.max_seq_len = covered_length(p.metadata, p.rows.max_seq_len);
    // Forms without an operand do not read it.
    const at::Tensor operand = inputs.operand().value_or(inputs.seq_lens);
    const std::array memory{tables.swa,
                            tables.c4,
                            tables.c128,
                            tables.c4_state,
                            tables.c128_state,
                            inputs.req_pool_indices,
                            inputs.seq_lens,
                            operand,
                            out.positions_c4,
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
    npu::launch_on(kOp, memory,
                   blocks_for(metadata_bytes(p.rows, p.metadata), kGrainBytes, npu::vector_cores(tables.swa)),
                   [p, errors = npu::error_lanes(tables.swa)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(compress_metadata)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_compress_metadata<&launch_compress_metadata>(m); }

}  // namespace dsv4
