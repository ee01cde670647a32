#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <type_traits>

#include "ops/rope_gather/rope_gather.h"
#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

// Bytes written below which a second thread costs more than it copies.
constexpr int64_t kBytesPerThread = 1 << 20;
// Rows between a prefetch and its use: enough to hide a cache miss, few enough to stay in the first-level cache.
constexpr int64_t kPrefetchRows = 4;

template <typename index_t>
void check_positions(const index_t* positions /* [T] */, const RopeGatherParams& p) {
    for (int64_t row = 0; row < p.num_positions; ++row) {
        TORCH_CHECK_INDEX(rope_position_valid(positions[row], p), "rope_gather: positions[", row, "] is ",
                          positions[row], ", expected 0 <= position < ", p.max_pos, " (rows of the tables)");
    }
}

// Rows of one dtype, as bit patterns: inverse flips the sign bit. A dim known to the compiler makes straight-line code.
template <typename bits_t, int32_t fixed_dim>
struct BitRows {
    bits_t sin_flip;

    void operator()(const bits_t* cos, const bits_t* sin, bits_t* cos_out, bits_t* sin_out, int32_t rope_dim) const {
        const int32_t dim = fixed_dim > 0 ? fixed_dim : rope_dim;
        for (int32_t i = 0; i < dim; ++i) {
            cos_out[i] = cos[i];
        }
        for (int32_t i = 0; i < dim; ++i) {
            sin_out[i] = sin[i] ^ sin_flip;
        }
    }
};

// Rows that change dtype, rounded once.
template <typename in_t, typename out_t>
struct ConvertedRows {
    float sin_sign;

    void operator()(const in_t* cos, const in_t* sin, out_t* cos_out, out_t* sin_out, int32_t rope_dim) const {
        for (int32_t i = 0; i < rope_dim; ++i) {
            cos_out[i] = static_cast<out_t>(static_cast<float>(cos[i]));
            sin_out[i] = static_cast<out_t>(sin_sign * static_cast<float>(sin[i]));
        }
    }
};

// cos, sin: [max_pos, D] of in_t; cos_out, sin_out: [T, D] of out_t. All four are disjoint.
template <typename in_t, typename out_t, typename index_t, typename Row>
void gather(const in_t* cos, const in_t* sin, const index_t* positions, out_t* cos_out, out_t* sin_out,
            const RopeGatherParams& p, const Row& write_row) {
    const int64_t row_bytes = 2 * p.rope_dim * static_cast<int64_t>(sizeof(out_t));
    at::parallel_for(0, p.num_positions, 1 + kBytesPerThread / (row_bytes + 1), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const int64_t ahead = rope_table_offset_elems(positions[min_of(row + kPrefetchRows, end - 1)], p);
            __builtin_prefetch(cos + ahead);
            __builtin_prefetch(sin + ahead);
            const int64_t from = rope_table_offset_elems(positions[row], p);
            const int64_t to = rope_output_offset_elems(row, p);
            write_row(cos + from, sin + from, cos_out + to, sin_out + to, p.rope_dim);
        }
    });
}

struct Tensors {
    const at::Tensor& cos;
    const at::Tensor& sin;
    const at::Tensor& positions;
    const at::Tensor& cos_out;
    const at::Tensor& sin_out;
};

template <typename bits_t, typename index_t>
void gather_bits(const Tensors& t, const RopeGatherParams& p) {
    const auto run = [&](auto write_row) {
        gather(static_cast<const bits_t*>(t.cos.const_data_ptr()), static_cast<const bits_t*>(t.sin.const_data_ptr()),
               t.positions.const_data_ptr<index_t>(), static_cast<bits_t*>(t.cos_out.mutable_data_ptr()),
               static_cast<bits_t*>(t.sin_out.mutable_data_ptr()), p, write_row);
    };
    const auto sign_bit = static_cast<bits_t>(bits_t{1} << (8 * sizeof(bits_t) - 1));
    const bits_t flip = p.inverse ? sign_bit : bits_t{0};
    if (p.rope_dim == 64) {
        run(BitRows<bits_t, 64>{flip});
    } else {
        run(BitRows<bits_t, 0>{flip});
    }
}

template <typename in_t, typename index_t>
void gather_converted_from(const Tensors& t, const RopeGatherParams& p) {
    visit_rope_dtype(t.cos_out.scalar_type(), [&](auto element) {
        using out_t = decltype(element);
        if constexpr (!std::is_same_v<in_t, out_t>) {
            gather(t.cos.const_data_ptr<in_t>(), t.sin.const_data_ptr<in_t>(), t.positions.const_data_ptr<index_t>(),
                   t.cos_out.mutable_data_ptr<out_t>(), t.sin_out.mutable_data_ptr<out_t>(), p,
                   ConvertedRows<in_t, out_t>{p.inverse ? -1.0f : 1.0f});
        }
    });
}

template <typename index_t>
void gather_converted(const Tensors& t, const RopeGatherParams& p) {
    visit_rope_dtype(t.cos.scalar_type(),
                     [&](auto element) { gather_converted_from<decltype(element), index_t>(t, p); });
}

void rope_gather_out_cpu(const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions, bool inverse,
                         const at::Tensor& cos_out, const at::Tensor& sin_out) {
    const RopeGatherParams p = check_rope_gather(cos, sin, positions, inverse, cos_out, sin_out);
    const Tensors tensors{cos, sin, positions, cos_out, sin_out};
    AT_DISPATCH_INDEX_TYPES(positions.scalar_type(), "rope_gather", [&] {
        check_positions(positions.const_data_ptr<index_t>(), p);
        if (cos.scalar_type() != cos_out.scalar_type()) {
            gather_converted<index_t>(tensors, p);
        } else if (cos.element_size() == sizeof(uint32_t)) {
            gather_bits<uint32_t, index_t>(tensors, p);
        } else {
            gather_bits<uint16_t, index_t>(tensors, p);
        }
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
