#include <ATen/Parallel.h>
#include <c10/util/complex.h>

#include "cpu/rows_per_thread.h"
#include "ops/rope_tables/rope_tables.h"
#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

// Pairs below which a second thread costs more than it converts.
constexpr int64_t kPairsPerThread = 1 << 18;

// freqs: (real, imaginary) floats of [max_pos, D / 2]; cos, sin: [max_pos, D].
template <typename out_t>
void fill_tables(const float* freqs, out_t* cos, out_t* sin, const RopeTablesParams& p) {
    at::parallel_for(0, p.max_pos, cpu::rows_per_thread(kPairsPerThread, p.num_pairs), [&](int64_t begin, int64_t end) {
        for (int64_t position = begin; position < end; ++position) {
            for (int64_t pair = 0; pair < p.num_pairs; ++pair) {
                const int64_t from = rope_tables_real_offset_elems(position, pair, p);
                const int64_t to = rope_tables_pair_offset_elems(position, pair, p);
                cos[to] = cos[to + 1] = static_cast<out_t>(freqs[from]);
                sin[to] = sin[to + 1] = static_cast<out_t>(freqs[from + 1]);
            }
        }
    });
}

void run(const RopeTablesParams& p, const at::Tensor& freqs_cis, const at::Tensor& cos_out, const at::Tensor& sin_out) {
    const auto* freqs = reinterpret_cast<const float*>(freqs_cis.const_data_ptr<c10::complex<float>>());
    visit_rope_dtype(cos_out.scalar_type(), [&](auto element) {
        using out_t = decltype(element);
        fill_tables(freqs, cos_out.mutable_data_ptr<out_t>(), sin_out.mutable_data_ptr<out_t>(), p);
    });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_rope_tables<&run>(m); }

}  // namespace dsv4
