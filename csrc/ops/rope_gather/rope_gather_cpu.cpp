#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cstring>
#include <type_traits>

#include "ops/rope_gather/rope_gather.h"

namespace dsv4 {
namespace {

// Rows below which a second thread costs more than it copies.
constexpr int64_t kRowsPerThread = 16384;

template <typename index_t>
void check_positions(const index_t* positions /* [T] */, const RopeGatherParams& p) {
    for (int64_t row = 0; row < p.num_positions; ++row) {
        TORCH_CHECK_INDEX(rope_position_valid(positions[row], p), "rope_gather: positions[", row, "] is ",
                          positions[row], ", expected 0 <= position < ", p.max_pos, " (rows of the tables)");
    }
}

// table: [max_pos, D] of in_t; out: [T, D] of out_t.
template <typename in_t, typename out_t, typename index_t, bool negate>
void gather_rows(const in_t* table, const index_t* positions, out_t* out, const RopeGatherParams& p) {
    at::parallel_for(0, p.num_positions, kRowsPerThread, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const in_t* source = table + rope_table_offset_elems(positions[row], p);
            out_t* target = out + rope_output_offset_elems(row, p);
            if constexpr (std::is_same_v<in_t, out_t> && !negate) {
                std::memcpy(target, source, p.rope_dim * sizeof(in_t));
            } else {
                for (int32_t i = 0; i < p.rope_dim; ++i) {
                    const float value = static_cast<float>(source[i]);
                    target[i] = static_cast<out_t>(negate ? -value : value);
                }
            }
        }
    });
}

template <typename in_t, typename out_t, typename index_t>
void gather_both(const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions, const at::Tensor& cos_out,
                 const at::Tensor& sin_out, const RopeGatherParams& p) {
    const index_t* rows = positions.const_data_ptr<index_t>();
    check_positions(rows, p);
    gather_rows<in_t, out_t, index_t, false>(cos.const_data_ptr<in_t>(), rows, cos_out.mutable_data_ptr<out_t>(), p);
    if (p.inverse) {
        gather_rows<in_t, out_t, index_t, true>(sin.const_data_ptr<in_t>(), rows, sin_out.mutable_data_ptr<out_t>(), p);
    } else {
        gather_rows<in_t, out_t, index_t, false>(sin.const_data_ptr<in_t>(), rows, sin_out.mutable_data_ptr<out_t>(),
                                                 p);
    }
}

void rope_gather_out_cpu(const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions, bool inverse,
                         const at::Tensor& cos_out, const at::Tensor& sin_out) {
    const RopeGatherParams p = check_rope_gather(cos, sin, positions, inverse, cos_out, sin_out);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, cos.scalar_type(), "rope_gather_table", [&] {
        using in_t = scalar_t;
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, cos_out.scalar_type(), "rope_gather_output", [&] {
            AT_DISPATCH_INDEX_TYPES(positions.scalar_type(), "rope_gather_positions", [&] {
                gather_both<in_t, scalar_t, index_t>(cos, sin, positions, cos_out, sin_out, p);
            });
        });
    });
}

std::tuple<at::Tensor, at::Tensor> rope_gather_cpu(const at::Tensor& cos, const at::Tensor& sin,
                                                   const at::Tensor& positions, bool inverse,
                                                   std::optional<at::ScalarType> dtype) {
    auto [cos_out, sin_out] = empty_rope_rows(cos, positions, dtype);
    rope_gather_out_cpu(cos, sin, positions, inverse, cos_out, sin_out);
    return {std::move(cos_out), std::move(sin_out)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) {
    m.impl("rope_gather", &rope_gather_cpu);
    m.impl("rope_gather.out", &rope_gather_out_cpu);
}

}  // namespace dsv4
