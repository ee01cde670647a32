#include "ops/compressor_metadata/compressor_metadata.h"

#include <limits>

#include "torch/check.h"
#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "compressor_metadata";

constexpr const char* kFieldNames[kNumCompressorFields] = {"cos", "sin", "slot_mapping", "positions"};

void check_numbers(const CompressorMetadataArguments& a) {
    check::at_least(kOp, "num_rows", a.num_rows, 0);
    check::at_least(kOp, "num_reqs", a.num_reqs, 0);
    check::at_least(kOp, "compress_ratio", a.compress_ratio, 1);
    check::at_least(kOp, "kv_block_size", a.kv_block_size, 1);
    TORCH_CHECK_VALUE(a.kv_block_size <= kInt32Max, kOp, ": kv_block_size is ", a.kv_block_size, ", expected at most ",
                      kInt32Max);
    TORCH_CHECK_VALUE(a.slot_mapping_format == kSlotMappingFlat || a.slot_mapping_format == kSlotMappingPairs, kOp,
                      ": slot_mapping_format is ", a.slot_mapping_format, ", expected 1 (flat) or 2 (block, offset)");
}

int32_t shift_or_none(int64_t number) { return is_power_of_two(number) ? log2_of(number) : -1; }

// One number for each request; returns whether they are int64. There may be more: a captured bucket keeps its size.
int32_t check_per_request(const char* name, const at::Tensor& values, int64_t minimum, const at::Tensor& on) {
    check::dim(kOp, name, values, 1);
    check::same_device(kOp, name, values, "cu_seqlens", on);
    TORCH_CHECK_VALUE(values.size(0) >= minimum, kOp, ": ", name, " has ", values.size(0),
                      " entries, expected at least ", minimum, " for num_reqs");
    check::integer(kOp, name, values);
    check::contiguous(kOp, name, values);
    return values.scalar_type() == at::kLong;
}

void check_requests(const CompressorMetadataArguments& a, CompressorMetadataParams& p, CompressorMetadataTensors& t) {
    p.num_reqs = a.num_reqs;
    p.cu_seqlens_is_int64 = check_per_request("cu_seqlens", a.cu_seqlens, a.num_reqs + 1, a.cu_seqlens);
    p.start_pos_is_int64 = check_per_request("start_pos", a.start_pos, a.num_reqs, a.cu_seqlens);
    t.cu_seqlens = a.cu_seqlens;
    t.start_pos = a.start_pos;
    if (a.req_pool_indices.has_value()) {
        p.has_requests = 1;
        p.request_is_int64 = check_per_request("req_pool_indices", *a.req_pool_indices, a.num_reqs, a.cu_seqlens);
        t.req_pool_indices = *a.req_pool_indices;
    }
}

void check_blocks(const CompressorMetadataArguments& a, CompressorMetadataParams& p, CompressorMetadataTensors& t) {
    const at::Tensor& table = a.kv_block_table;
    check::dim(kOp, "kv_block_table", table, 2);
    check::same_device(kOp, "kv_block_table", table, "cu_seqlens", a.cu_seqlens);
    TORCH_CHECK_VALUE(p.has_requests || table.size(0) >= a.num_reqs, kOp, ": kv_block_table has ", table.size(0),
                      " rows, expected at least ", a.num_reqs, " for num_reqs");
    check::integer(kOp, "kv_block_table", table);
    check::contiguous_rows(kOp, "kv_block_table", table);
    p.block_is_int64 = table.scalar_type() == at::kLong;
    p.block_rows = table.size(0);
    p.block_columns = table.size(1);
    p.block_row_elems = table.stride(0);
    p.block_size = a.kv_block_size;
    p.block_shift = shift_or_none(a.kv_block_size);
    p.ratio = a.compress_ratio;
    p.ratio_shift = shift_or_none(a.compress_ratio);
    t.kv_block_table = table;
}

void check_rope_table(const char* name, const at::Tensor& table, const at::Tensor& cos, const at::Tensor& on) {
    check::dim(kOp, name, table, 2);
    check::rope_dtype(kOp, name, table);
    check::dtype(kOp, name, table, {cos.scalar_type()});
    check::same_device(kOp, name, table, "cu_seqlens", on);
    check::shape(kOp, name, table, cos.sizes());
    check::contiguous(kOp, name, table);
}

void check_rope(const CompressorMetadataArguments& a, CompressorMetadataParams& p, CompressorMetadataTensors& t) {
    p.max_pos = std::numeric_limits<int64_t>::max();
    TORCH_CHECK_VALUE(a.rope_cos.has_value() == a.rope_sin.has_value(), kOp, ": rope_sin is ",
                      a.rope_sin.has_value() ? "a tensor" : "None", ", expected ",
                      a.rope_cos.has_value() ? "a tensor" : "None", " like rope_cos");
    if (!a.rope_cos.has_value()) {
        return;
    }
    check_rope_table("rope_cos", *a.rope_cos, *a.rope_cos, a.cu_seqlens);
    check_rope_table("rope_sin", *a.rope_sin, *a.rope_cos, a.cu_seqlens);
    p.max_pos = a.rope_cos->size(0);
    t.rope_cos = *a.rope_cos;
    t.rope_sin = *a.rope_sin;
}

void check_output(int32_t field, at::ScalarType dtype, at::IntArrayRef row, const CompressorMetadataArguments& a,
                  CompressorMetadataParams& p, const CompressorMetadataTensors& t) {
    const at::Tensor& out = t.fields[field];
    const char* name = kFieldNames[field];
    check::dtype(kOp, name, out, {dtype});
    check::same_device(kOp, name, out, "cu_seqlens", a.cu_seqlens);
    if (p.num_rows < 0) {
        // The first output says how many rows all of them have.
        TORCH_CHECK_VALUE(out.dim() >= 1 && out.size(0) >= a.num_rows, kOp, ": ", name, " has shape ", out.sizes(),
                          ", expected at least ", a.num_rows, " rows (num_rows)");
        p.num_rows = out.size(0);
    }
    c10::DimVector shape(1, p.num_rows);
    shape.append(row.begin(), row.end());
    check::shape(kOp, name, out, shape);
    check::contiguous(kOp, name, out);
}

void check_outputs(const CompressorMetadataArguments& a, CompressorMetadataParams& p, CompressorMetadataTensors& t) {
    p.num_rows = -1;
    for (const int32_t field : {kCompressorCos, kCompressorSin}) {
        if (wants(p, field)) {
            TORCH_CHECK_VALUE(t.rope_cos.defined(), kOp, ": ", kFieldNames[field],
                              " is a tensor, expected None without rope_cos and rope_sin");
            check_output(field, t.rope_cos.scalar_type(), {1, 1, t.rope_cos.size(1)}, a, p, t);
            p.rope_dim = static_cast<int32_t>(t.rope_cos.size(1));
            p.table_type = element_type(t.rope_cos.scalar_type());
        }
    }
    p.pairs = a.slot_mapping_format == kSlotMappingPairs;
    if (wants(p, kCompressorSlots)) {
        const int64_t two = 2;
        check_output(kCompressorSlots, at::kInt, p.pairs ? at::IntArrayRef(two) : at::IntArrayRef(), a, p, t);
    }
    if (wants(p, kCompressorPositions)) {
        check_output(kCompressorPositions, at::kLong, {}, a, p, t);
    }
    p.num_rows = max_of<int64_t>(p.num_rows, 0);
}

}  // namespace

CompressorMetadataParams check_compressor_metadata(const CompressorMetadataArguments& a, CompressorMetadataTensors& t) {
    CompressorMetadataParams p{};
    check_numbers(a);
    check_requests(a, p, t);
    check_blocks(a, p, t);
    check_rope(a, p, t);
    for (int32_t field = 0; field < kNumCompressorFields; ++field) {
        p.wanted |= t.fields[field].defined() << field;
    }
    check_outputs(a, p, t);
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "compressor_metadata(Tensor? rope_cos, Tensor? rope_sin, Tensor cu_seqlens, Tensor start_pos,"
        " Tensor? req_pool_indices, Tensor kv_block_table, int kv_block_size, int slot_mapping_format,"
        " int compress_ratio, int num_rows, int num_reqs, Tensor(a!)? cos, Tensor(b!)? sin, Tensor(c!)? slot_mapping,"
        " Tensor(d!)? positions) -> ()");
}

}  // namespace dsv4
