#include "ops/compressor_metadata/compressor_metadata.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_compressor_metadata.h"

namespace dsv4 {
namespace {

void launch_compressor_metadata(const CompressorMetadataParams& p, const CompressorMetadataInputs& in,
                                const CompressorMetadataOutputs& out) {
    constexpr char kOp[] = "compressor_metadata";
    TORCH_CHECK_VALUE(compressor_tile_rows(p) > 0, kOp, ": rope_cos has ", p.rope_dim,
                      " features, expected fewer: 8 rows of both tables must fit into a core's ", kUbBudgetBytes,
                      " bytes");
    if (p.num_rows == 0) {
        return;
    }
    const std::array memory{in.rope_cos,       in.rope_sin, in.cu_seqlens, in.start_pos,
                            in.kv_block_table, out.cos,     out.sin,       out.slot_mapping};
    npu::launch_on(kOp, memory, compressor_blocks(p, npu::vector_cores(in.rope_cos)),
                   [p = p, errors = npu::error_lanes(in.rope_cos)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(compressor_metadata)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_compressor_metadata<&launch_compressor_metadata>(m); }

}  // namespace dsv4
