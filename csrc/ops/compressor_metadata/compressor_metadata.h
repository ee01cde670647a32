#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>

#include "ops/compressor_metadata/compressor_metadata_index.h"

namespace dsv4 {

// Undefined where nothing is given or asked for.
struct CompressorMetadataTensors {
    at::Tensor rope_cos;                                  // [max_pos, D]
    at::Tensor rope_sin;                                  // [max_pos, D]
    at::Tensor cu_seqlens;                                // [>= num_reqs + 1] int32 or int64
    at::Tensor start_pos;                                 // [>= num_reqs] int32 or int64
    at::Tensor req_pool_indices;                          // [>= num_reqs] int32 or int64
    at::Tensor kv_block_table;                            // [rows, W] int32 or int64
    std::array<at::Tensor, kNumCompressorFields> fields;  // see compressor_metadata_index.h
};

// Arguments of the op as the dispatcher hands them over.
struct CompressorMetadataArguments {
    const std::optional<at::Tensor>& rope_cos;
    const std::optional<at::Tensor>& rope_sin;
    const at::Tensor& cu_seqlens;
    const at::Tensor& start_pos;
    const std::optional<at::Tensor>& req_pool_indices;
    const at::Tensor& kv_block_table;
    int64_t kv_block_size;
    int64_t slot_mapping_format;
    int64_t compress_ratio;
    int64_t num_rows;
    int64_t num_reqs;
};

// Checks every argument but the values in tensors, and keeps the tensors beside the fields that `tensors` has already.
CompressorMetadataParams check_compressor_metadata(const CompressorMetadataArguments& arguments,
                                                   CompressorMetadataTensors& tensors);

// Registers the op over a backend's run(params, tensors, num_rows): num_rows is what the groups must fit into, of the
// rows that the outputs have.
template <auto run>
void register_compressor_metadata(torch::Library& library) {
    library.impl("compressor_metadata",
                 [](const std::optional<at::Tensor>& rope_cos, const std::optional<at::Tensor>& rope_sin,
                    const at::Tensor& cu_seqlens, const at::Tensor& start_pos,
                    const std::optional<at::Tensor>& req_pool_indices, const at::Tensor& kv_block_table,
                    int64_t kv_block_size, int64_t slot_mapping_format, int64_t compress_ratio, int64_t num_rows,
                    int64_t num_reqs, const std::optional<at::Tensor>& cos, const std::optional<at::Tensor>& sin,
                    const std::optional<at::Tensor>& slot_mapping, const std::optional<at::Tensor>& positions) {
                     CompressorMetadataTensors tensors;
                     tensors.fields = {cos.value_or(at::Tensor()), sin.value_or(at::Tensor()),
                                       slot_mapping.value_or(at::Tensor()), positions.value_or(at::Tensor())};
                     const CompressorMetadataParams p = check_compressor_metadata(
                         {rope_cos, rope_sin, cu_seqlens, start_pos, req_pool_indices, kv_block_table, kv_block_size,
                          slot_mapping_format, compress_ratio, num_rows, num_reqs},
                         tensors);
                     run(p, tensors, num_rows);
                 });
}

}  // namespace dsv4
