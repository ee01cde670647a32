// Buffers of a call's results, all at once: from Python each takes longer than a small op.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <vector>

#include "torch/check.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "empty_tensors";

// Their numbers: python/dsv4_npu_ops/layout/buffers.py.
constexpr at::ScalarType kDtypes[] = {at::kInt,      at::kLong,   at::kFloat, at::kHalf,
                                      at::kBFloat16, at::kDouble, at::kByte,  at::kChar};

// numbers: of each tensor the number of its dtype, its number of dimensions, and its sizes.
std::vector<at::Tensor> empty_tensors(at::IntArrayRef numbers, at::Device device) {
    std::vector<at::Tensor> tensors;
    size_t next = 0;
    while (next < numbers.size()) {
        const int64_t dtype = numbers[next];
        const int64_t dimensions = next + 1 < numbers.size() ? numbers[next + 1] : -1;
        next += 2;
        TORCH_CHECK_VALUE(dtype >= 0 && dtype < static_cast<int64_t>(std::size(kDtypes)) && dimensions >= 0 &&
                              dimensions <= static_cast<int64_t>(numbers.size() - next),
                          kOp, ": numbers are ", numbers,
                          ", expected the number of a dtype, of dimensions, and sizes of each tensor");
        tensors.push_back(
            at::empty(numbers.slice(next, dimensions), at::TensorOptions().dtype(kDtypes[dtype]).device(device)));
        next += dimensions;
    }
    return tensors;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) { m.def("empty_tensors(int[] numbers, Device device) -> Tensor[]"); }

// Of any device: there is no tensor whose backend would be asked.
TORCH_LIBRARY_IMPL(dsv4_npu_ops, CompositeExplicitAutograd, m) { m.impl("empty_tensors", &empty_tensors); }

}  // namespace dsv4
