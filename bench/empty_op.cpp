// Ops that only allocate and return a number of small tensors: the floor under every op with as many outputs.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <array>
#include <string>
#include <tuple>
#include <utility>

namespace {

// Any device.
constexpr auto kKey = c10::DispatchKey::CompositeExplicitAutograd;

template <size_t>
using TensorAt = at::Tensor;

template <size_t... index>
std::tuple<TensorAt<index>...> allocate(const at::Tensor& like, std::index_sequence<index...>) {
    return {((void)index, at::empty({64}, like.options()))...};
}

template <size_t count>
auto empty_outputs(const at::Tensor& like) {
    return allocate(like, std::make_index_sequence<count>());
}

void no_output(const at::Tensor& like) {}

template <size_t count>
void define(torch::Library& m) {
    std::string results = "Tensor";
    for (size_t i = 1; i < count; ++i) {
        results += ", Tensor";
    }
    const std::string name = "empty_" + std::to_string(count);
    m.def((name + "(Tensor like) -> " + (count == 1 ? results : "(" + results + ")")).c_str());
    if constexpr (count == 1) {
        m.impl(name.c_str(), kKey,
               [](const at::Tensor& like) { return std::get<0>(empty_outputs<1>(like)); });
    } else {
        m.impl(name.c_str(), kKey, &empty_outputs<count>);
    }
}

}  // namespace

TORCH_LIBRARY(dsv4_npu_bench, m) {
    m.def("empty_0(Tensor like) -> ()");
    m.impl("empty_0", kKey, &no_output);
    define<1>(m);
    define<2>(m);
    define<3>(m);
    define<6>(m);
    define<14>(m);
    define<20>(m);
    define<24>(m);
}
