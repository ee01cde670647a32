#include "torch/empty_tensors.h"

#include <ATen/EmptyTensor.h>
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

}  // namespace

at::Tensor empty_tensor(at::ScalarType dtype, at::IntArrayRef sizes, at::Device device) {
    // What at::empty comes to on a CPU, without the way there.
    return device.is_cpu() ? at::Tensor(at::detail::empty_cpu(sizes, dtype))
                           : at::empty(sizes, at::TensorOptions().dtype(dtype).device(device));
}

std::vector<at::Tensor> empty_tensors(at::IntArrayRef numbers, at::Device device) {
    std::vector<at::Tensor> tensors;
    size_t next = 0;
    while (next < numbers.size()) {
        const int64_t count = numbers[next++];
        const bool fits = count >= 1 && count <= static_cast<int64_t>(numbers.size() - next);
        TORCH_CHECK_VALUE(fits && numbers[next] >= 0 && numbers[next] < static_cast<int64_t>(std::size(kDtypes)), kOp,
                          ": numbers are ", numbers,
                          ", expected of each tensor how many follow, the number of a dtype, and sizes");
        const at::IntArrayRef sizes = numbers.slice(next + 1, count - 1);
        const at::ScalarType dtype = kDtypes[numbers[next]];
        tensors.push_back(empty_tensor(dtype, sizes, device));
        next += count;
    }
    return tensors;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) { m.def("empty_tensors(int[] numbers, Device device) -> Tensor[]"); }

// Of any device: there is no tensor whose backend would be asked.
TORCH_LIBRARY_IMPL(dsv4_npu_ops, CompositeExplicitAutograd, m) { m.impl("empty_tensors", &empty_tensors); }

}  // namespace dsv4
