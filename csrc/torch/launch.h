// The one seam between an op's host code and a device: which device, how many cores, and how a kernel is put on its
// stream. The NPU build implements it with torch_npu; tests implement it with a simulator.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

namespace dsv4::npu {

// Vector cores of the device that holds `on`, queried from the runtime.
int64_t vector_cores(const at::Tensor& on);

// Device memory of the sticky error words of the device that holds `on`, see common/device_error.h.
void* error_lanes(const at::Tensor& on);

// Puts a kernel on the current stream of the device that holds the first tensor of `memory`, behind everything queued
// before. `memory` is every tensor that the kernel reads or writes; all must be on that device. `run` calls the
// generated aclrtlaunch_<kernel>(blocks, stream, ..) and returns its code; it owns all that it uses by value, because
// it may run later on another thread. A code other than 0 becomes an error that names `op`.
void launch(const char* op, at::TensorList memory, int64_t blocks,
            std::function<uint32_t(uint32_t blocks, void* stream)> run);

// Data addresses of several tensors, to capture by value.
template <size_t count>
std::array<void*, count> addresses(const std::array<at::Tensor, count>& tensors) {
    std::array<void*, count> result;
    for (size_t i = 0; i < count; ++i) {
        result[i] = tensors[i].data_ptr();
    }
    return result;
}

// Launches a kernel whose first arguments are the addresses of `memory`, in that order:
// run(blocks, stream, addresses..).
template <size_t count, typename Run>
void launch_on(const char* op, const std::array<at::Tensor, count>& memory, int64_t blocks, Run run) {
    launch(op, memory, blocks,
           [at = addresses(memory), run = std::move(run)](uint32_t blocks_to_run, void* stream) mutable {
               return std::apply([&](auto... address) { return run(blocks_to_run, stream, address...); }, at);
           });
}

}  // namespace dsv4::npu
