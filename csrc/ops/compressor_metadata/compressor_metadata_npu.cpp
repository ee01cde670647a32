#include "ops/compressor_metadata/compressor_metadata.h"
#include "torch/launch.h"
#include "torch/launch_memory.h"

// Names the parameter structs above without declaring them.
#include "aclrtlaunch_compressor_metadata.h"

namespace dsv4 {
namespace {

void launch_compressor_metadata(const CompressorMetadataParams& p, const CompressorMetadataTensors& t, int64_t) {
    constexpr char kOp[] = "compressor_metadata";
    TORCH_CHECK_VALUE(compressor_tile_rows(p) > 0, kOp, ": rope_cos has ", p.rope_dim,
                      " features, expected fewer: 8 rows of both tables must fit into a core's ", kUbBudgetBytes,
                      " bytes");
    if (p.num_rows == 0) {
        return;
    }
    npu::LaunchMemory memory;
    CompressorMetadataAddresses at{};
    at.rope_cos = memory.add(t.rope_cos);
    at.rope_sin = memory.add(t.rope_sin);
    at.cu_seqlens = memory.add(t.cu_seqlens);
    at.start_pos = memory.add(t.start_pos);
    at.requests = memory.add(t.req_pool_indices);
    at.block_table = memory.add(t.kv_block_table);
    memory.add(t.fields, at.fields);
    npu::launch(kOp, memory.tensors(), compressor_blocks(p, npu::vector_cores(t.cu_seqlens)),
                [p = p, at = at, errors = npu::error_lanes(t.cu_seqlens)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(compressor_metadata)(blocks, stream, errors, &at, &p);
                });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_compressor_metadata<&launch_compressor_metadata>(m); }

}  // namespace dsv4
