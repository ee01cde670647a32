#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "ops/compressor_metadata/compressor_metadata_index.h"

namespace dsv4 {

struct CompressorMetadataInputs {
    const at::Tensor& rope_cos;        // [max_pos, D]
    const at::Tensor& rope_sin;        // [max_pos, D]
    const at::Tensor& cu_seqlens;      // [>= num_reqs + 1]
    const at::Tensor& start_pos;       // [>= num_reqs]
    const at::Tensor& kv_block_table;  // [>= num_reqs, W] int32
    int64_t kv_block_size;
    int64_t slot_mapping_format;
    int64_t compress_ratio;
    int64_t num_rows;
    int64_t num_reqs;
};

struct CompressorMetadataOutputs {
    const at::Tensor& cos;           // [rows, 1, 1, D]
    const at::Tensor& sin;           // [rows, 1, 1, D]
    const at::Tensor& slot_mapping;  // [rows] or [rows, 2] int32
};

// Checks every argument of compressor_metadata.out; touches no data.
CompressorMetadataParams check_compressor_metadata(const CompressorMetadataInputs& in,
                                                   const CompressorMetadataOutputs& out);

// New outputs of num_rows rows, on the tables' device: cos, sin, slot_mapping.
std::tuple<at::Tensor, at::Tensor, at::Tensor> empty_compressor_metadata(const CompressorMetadataInputs& in);

}  // namespace dsv4
