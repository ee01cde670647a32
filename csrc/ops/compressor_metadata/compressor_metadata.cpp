#include "ops/compressor_metadata/compressor_metadata.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "compressor_metadata";

void check_numbers(const CompressorMetadataInputs& in) {
    check::at_least(kOp, "num_rows", in.num_rows, 0);
    check::at_least(kOp, "num_reqs", in.num_reqs, 0);
    check::at_least(kOp, "compress_ratio", in.compress_ratio, 1);
    check::at_least(kOp, "kv_block_size", in.kv_block_size, 1);
    TORCH_CHECK_VALUE(in.kv_block_size <= kInt32Max, kOp, ": kv_block_size is ", in.kv_block_size,
                      ", expected at most ", kInt32Max);
    TORCH_CHECK_VALUE(in.slot_mapping_format == kSlotMappingFlat || in.slot_mapping_format == kSlotMappingPairs, kOp,
                      ": slot_mapping_format is ", in.slot_mapping_format, ", expected 1 (flat) or 2 (block, offset)");
}

// A tensor of one entry or row for each request. It may have more: a captured bucket keeps its size.
void check_per_request(const char* name, const at::Tensor& tensor, int64_t dim, int64_t minimum,
                       const at::Tensor& rope_cos) {
    check::dim(kOp, name, tensor, dim);
    check::same_device(kOp, name, tensor, "rope_cos", rope_cos);
    TORCH_CHECK_VALUE(tensor.size(0) >= minimum, kOp, ": ", name, " has ", tensor.size(0),
                      dim == 1 ? " entries" : " rows", ", expected at least ", minimum, " for num_reqs");
}

void check_inputs(const CompressorMetadataInputs& in) {
    check_numbers(in);
    check::dim(kOp, "rope_cos", in.rope_cos, 2);
    check::rope_dtype(kOp, "rope_cos", in.rope_cos);
    check::contiguous(kOp, "rope_cos", in.rope_cos);
    check::dtype(kOp, "rope_sin", in.rope_sin, {in.rope_cos.scalar_type()});
    check::same_device(kOp, "rope_sin", in.rope_sin, "rope_cos", in.rope_cos);
    check::shape(kOp, "rope_sin", in.rope_sin, in.rope_cos.sizes());
    check::contiguous(kOp, "rope_sin", in.rope_sin);
    check_per_request("cu_seqlens", in.cu_seqlens, 1, in.num_reqs + 1, in.rope_cos);
    check::integer(kOp, "cu_seqlens", in.cu_seqlens);
    check::contiguous(kOp, "cu_seqlens", in.cu_seqlens);
    check_per_request("start_pos", in.start_pos, 1, in.num_reqs, in.rope_cos);
    check::integer(kOp, "start_pos", in.start_pos);
    check::contiguous(kOp, "start_pos", in.start_pos);
    check_per_request("kv_block_table", in.kv_block_table, 2, in.num_reqs, in.rope_cos);
    check::dtype(kOp, "kv_block_table", in.kv_block_table, {at::kInt});
    check::contiguous_rows(kOp, "kv_block_table", in.kv_block_table);
}

void check_output(const char* name, const at::Tensor& out, at::ScalarType dtype, at::IntArrayRef shape,
                  const CompressorMetadataInputs& in) {
    check::dtype(kOp, name, out, {dtype});
    check::same_device(kOp, name, out, "rope_cos", in.rope_cos);
    check::shape(kOp, name, out, shape);
    check::contiguous(kOp, name, out);
}

}  // namespace

CompressorMetadataParams check_compressor_metadata(const CompressorMetadataInputs& in,
                                                   const CompressorMetadataOutputs& out) {
    check_inputs(in);
    TORCH_CHECK_VALUE(out.cos.dim() == 4 && out.cos.size(0) >= in.num_rows, kOp, ": cos_out has shape ",
                      out.cos.sizes(), ", expected [rows, 1, 1, D] with at least ", in.num_rows, " rows");
    const int64_t rows = out.cos.size(0);
    const int64_t rope_dim = in.rope_cos.size(1);
    const bool pairs = in.slot_mapping_format == kSlotMappingPairs;
    check_output("cos_out", out.cos, in.rope_cos.scalar_type(), {rows, 1, 1, rope_dim}, in);
    check_output("sin_out", out.sin, in.rope_cos.scalar_type(), {rows, 1, 1, rope_dim}, in);
    check_output("slot_mapping_out", out.slot_mapping, at::kInt,
                 pairs ? at::IntArrayRef{rows, 2} : at::IntArrayRef{rows}, in);
    CompressorMetadataParams p{};
    p.num_rows = rows;
    p.num_reqs = in.num_reqs;
    p.max_pos = in.rope_cos.size(0);
    p.block_columns = in.kv_block_table.size(1);
    p.block_row_elems = in.kv_block_table.stride(0);
    p.block_size = in.kv_block_size;
    p.ratio = in.compress_ratio;
    p.block_shift = is_power_of_two(in.kv_block_size) ? log2_of(in.kv_block_size) : -1;
    p.rope_dim = static_cast<int32_t>(rope_dim);
    p.pairs = pairs;
    p.cu_seqlens_is_int64 = in.cu_seqlens.scalar_type() == at::kLong;
    p.start_pos_is_int64 = in.start_pos.scalar_type() == at::kLong;
    p.table_type = element_type(in.rope_cos.scalar_type());
    return p;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> empty_compressor_metadata(const CompressorMetadataInputs& in) {
    check_inputs(in);
    const auto options = in.rope_cos.options();
    const auto slot_options = options.dtype(at::kInt);
    const int64_t rope_dim = in.rope_cos.size(1);
    return {at::empty({in.num_rows, 1, 1, rope_dim}, options), at::empty({in.num_rows, 1, 1, rope_dim}, options),
            in.slot_mapping_format == kSlotMappingPairs ? at::empty({in.num_rows, 2}, slot_options)
                                                        : at::empty({in.num_rows}, slot_options)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "compressor_metadata(Tensor rope_cos, Tensor rope_sin, Tensor cu_seqlens, Tensor start_pos,"
        " Tensor kv_block_table, int kv_block_size, int slot_mapping_format, int compress_ratio, int num_rows,"
        " int num_reqs) -> (Tensor, Tensor, Tensor)");
    m.def(
        "compressor_metadata.out(Tensor rope_cos, Tensor rope_sin, Tensor cu_seqlens, Tensor start_pos,"
        " Tensor kv_block_table, int kv_block_size, int slot_mapping_format, int compress_ratio, int num_rows,"
        " int num_reqs, *, Tensor(a!) cos_out, Tensor(b!) sin_out, Tensor(c!) slot_mapping_out) -> ()");
}

}  // namespace dsv4
