// The tensors of a launch whose kernel takes their addresses in a struct.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

namespace dsv4::npu {

class LaunchMemory {
  public:
    // Address of a tensor that the kernel reads or writes; 0 for one that is not defined.
    uint64_t add(const at::Tensor& tensor) {
        if (!tensor.defined()) {
            return 0;
        }
        tensors_.push_back(tensor);
        return reinterpret_cast<uint64_t>(tensor.data_ptr());
    }

    template <size_t count>
    void add(const std::array<at::Tensor, count>& tensors, uint64_t (&addresses)[count]) {
        for (size_t i = 0; i < count; ++i) {
            addresses[i] = add(tensors[i]);
        }
    }

    at::TensorList tensors() const { return tensors_; }

  private:
    std::vector<at::Tensor> tensors_;
};

}  // namespace dsv4::npu
