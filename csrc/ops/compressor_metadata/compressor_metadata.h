#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

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

// The two forms over a backend's run(params, inputs, outputs).
template <auto run>
struct CompressorMetadataForms {
    static void out(const at::Tensor& rope_cos, const at::Tensor& rope_sin, const at::Tensor& cu_seqlens,
                    const at::Tensor& start_pos, const at::Tensor& kv_block_table, int64_t kv_block_size,
                    int64_t slot_mapping_format, int64_t compress_ratio, int64_t num_rows, int64_t num_reqs,
                    const at::Tensor& cos_out, const at::Tensor& sin_out, const at::Tensor& slot_mapping_out) {
        check_and_run({rope_cos, rope_sin, cu_seqlens, start_pos, kv_block_table, kv_block_size, slot_mapping_format,
                       compress_ratio, num_rows, num_reqs},
                      {cos_out, sin_out, slot_mapping_out});
    }

    static std::tuple<at::Tensor, at::Tensor, at::Tensor> functional(
        const at::Tensor& rope_cos, const at::Tensor& rope_sin, const at::Tensor& cu_seqlens,
        const at::Tensor& start_pos, const at::Tensor& kv_block_table, int64_t kv_block_size,
        int64_t slot_mapping_format, int64_t compress_ratio, int64_t num_rows, int64_t num_reqs) {
        const CompressorMetadataInputs in{rope_cos,       rope_sin,      cu_seqlens,          start_pos,
                                          kv_block_table, kv_block_size, slot_mapping_format, compress_ratio,
                                          num_rows,       num_reqs};
        auto [cos_out, sin_out, slot_mapping_out] = empty_compressor_metadata(in);
        check_and_run(in, {cos_out, sin_out, slot_mapping_out});
        return {std::move(cos_out), std::move(sin_out), std::move(slot_mapping_out)};
    }

  private:
    static void check_and_run(const CompressorMetadataInputs& in, const CompressorMetadataOutputs& out) {
        run(check_compressor_metadata(in, out), in, out);
    }
};

template <auto run>
void register_compressor_metadata(torch::Library& library) {
    library.impl("compressor_metadata", &CompressorMetadataForms<run>::functional);
    library.impl("compressor_metadata.out", &CompressorMetadataForms<run>::out);
}

}  // namespace dsv4
