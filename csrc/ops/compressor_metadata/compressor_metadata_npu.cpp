#include <torch/library.h>

#include <array>

#include "ops/compressor_metadata/compressor_metadata.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_compressor_metadata.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "compressor_metadata";

void run(const CompressorMetadataInputs& in, const CompressorMetadataOutputs& out) {
    const CompressorMetadataParams p = check_compressor_metadata(in, out);
    TORCH_CHECK_VALUE(compressor_tile_rows(p) > 0, kOp, ": rope_cos has ", p.rope_dim,
                      " features, expected fewer: 8 rows of both tables must fit into a core's ", kUbBudgetBytes,
                      " bytes");
    if (p.num_rows == 0) {
        return;
    }
    const std::array<at::Tensor, 8> tensors{in.rope_cos,       in.rope_sin, in.cu_seqlens, in.start_pos,
                                            in.kv_block_table, out.cos,     out.sin,       out.slot_mapping};
    npu::launch(kOp,
                {tensors[0], tensors[1], tensors[2], tensors[3], tensors[4], tensors[5], tensors[6], tensors[7]},
                compressor_blocks(p, npu::vector_cores(in.rope_cos)),
                [p = p, at = npu::addresses(tensors),
                 errors = npu::error_lanes(in.rope_cos)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(compressor_metadata)(blocks, stream, at[0], at[1], at[2], at[3], at[4],
                                                                    at[5], at[6], at[7], errors, &p);
                });
}

void compressor_metadata_out_npu(const at::Tensor& rope_cos, const at::Tensor& rope_sin, const at::Tensor& cu_seqlens,
                                 const at::Tensor& start_pos, const at::Tensor& kv_block_table, int64_t kv_block_size,
                                 int64_t slot_mapping_format, int64_t compress_ratio, int64_t num_rows,
                                 int64_t num_reqs, const at::Tensor& cos_out, const at::Tensor& sin_out,
                                 const at::Tensor& slot_mapping_out) {
    run({rope_cos, rope_sin, cu_seqlens, start_pos, kv_block_table, kv_block_size, slot_mapping_format, compress_ratio,
         num_rows, num_reqs},
        {cos_out, sin_out, slot_mapping_out});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> compressor_metadata_npu(
    const at::Tensor& rope_cos, const at::Tensor& rope_sin, const at::Tensor& cu_seqlens, const at::Tensor& start_pos,
    const at::Tensor& kv_block_table, int64_t kv_block_size, int64_t slot_mapping_format, int64_t compress_ratio,
    int64_t num_rows, int64_t num_reqs) {
    const CompressorMetadataInputs in{rope_cos,       rope_sin,      cu_seqlens,          start_pos,
                                      kv_block_table, kv_block_size, slot_mapping_format, compress_ratio,
                                      num_rows,       num_reqs};
    auto [cos_out, sin_out, slot_mapping_out] = empty_compressor_metadata(in);
    run(in, {cos_out, sin_out, slot_mapping_out});
    return {std::move(cos_out), std::move(sin_out), std::move(slot_mapping_out)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    m.impl("compressor_metadata", &compressor_metadata_npu);
    m.impl("compressor_metadata.out", &compressor_metadata_out_npu);
}

}  // namespace dsv4
