#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <type_traits>

#include "cpu/rows_per_thread.h"
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
    const int64_t rows_per_thread = cpu::rows_per_thread(kBytesPerThread, row_bytes);
    at::parallel_for(0, p.num_positions, rows_per_thread, [&](int64_t begin, int64_t end) {
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

template <typename bits_t, typename index_t>
void gather_bits(const RopeGatherTensors& t, const RopeGatherParams& p) {
    const auto gather_rows = [&](auto write_row) {
        gather(static_cast<const bits_t*>(t.cos.const_data_ptr()), static_cast<const bits_t*>(t.sin.const_data_ptr()),
               t.positions.const_data_ptr<index_t>(), static_cast<bits_t*>(t.cos_out.mutable_data_ptr()),
               static_cast<bits_t*>(t.sin_out.mutable_data_ptr()), p, write_row);
    };
    const auto sign_bit = static_cast<bits_t>(bits_t{1} << (8 * sizeof(bits_t) - 1));
    const bits_t flip = p.inverse ? sign_bit : bits_t{0};
    if (p.rope_dim == 64) {
        gather_rows(BitRows<bits_t, 64>{flip});
    } else {
        gather_rows(BitRows<bits_t, 0>{flip});
    }
}

template <typename in_t, typename index_t>
void gather_converted_from(const RopeGatherTensors& t, const RopeGatherParams& p) {
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
void gather_converted(const RopeGatherTensors& t, const RopeGatherParams& p) {
    visit_rope_dtype(t.cos.scalar_type(),
                     [&](auto element) { gather_converted_from<decltype(element), index_t>(t, p); });
}

void run(const RopeGatherParams& p, const RopeGatherTensors& tensors) {
    AT_DISPATCH_INDEX_TYPES(tensors.positions.scalar_type(), "rope_gather", [&] {
        check_positions(tensors.positions.const_data_ptr<index_t>(), p);
        if (tensors.cos.scalar_type() != tensors.cos_out.scalar_type()) {
            gather_converted<index_t>(tensors, p);
        } else if (tensors.cos.element_size() == sizeof(uint32_t)) {
            gather_bits<uint32_t, index_t>(tensors, p);
        } else {
            gather_bits<uint16_t, index_t>(tensors, p);
        }
    });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_rope_gather<&run>(m); }

}  // namespace dsv4
