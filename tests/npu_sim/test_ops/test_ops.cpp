// Ops for the tests of the simulated device itself. Their "kernels" are host loops over the readable alias of device
// memory, launched the way generated kernel stubs are.
#include <torch/library.h>

#include "aclrtlaunch_sim_test_scale.h"
#include "ascend_device_sim.h"
#include "torch_npu/csrc/core/npu/NPUGuard.h"
#include "torch_npu/csrc/core/npu/NPUStream.h"
#include "torch_npu/csrc/framework/OpCommand.h"

namespace {

struct AddArguments {
    void* left;   // int32 [n], device
    void* right;  // int32 [n], device
    void* sum;    // int32 [n], device
    int32_t n;
};

uint32_t RunAdd(void* context) {
    const auto& arguments = *static_cast<const AddArguments*>(context);
    const auto* left = static_cast<const int32_t*>(ascend_device_sim_host_alias(arguments.left));
    const auto* right = static_cast<const int32_t*>(ascend_device_sim_host_alias(arguments.right));
    auto* sum = static_cast<int32_t*>(ascend_device_sim_host_alias(arguments.sum));
    if (left == nullptr || right == nullptr || sum == nullptr) {
        return ACL_ERROR_RT_VECTOR_CORE_EXCEPTION;
    }
    for (int32_t i = 0; i < arguments.n; ++i) {
        sum[i] = left[i] + right[i];
    }
    return 0;
}

uint32_t aclrtlaunch_sim_test_add(uint32_t /*block_dim*/, aclrtStream stream, void* left, void* right, void* sum,
                                  int32_t n) {
    const auto destroy = [](void* context) { delete static_cast<AddArguments*>(context); };
    return ascend_device_sim_enqueue(stream, "sim_test_add", RunAdd, destroy, new AddArguments{left, right, sum, n});
}

// Queued behind everything that torch_npu was told before, on the current stream of the current device.
void LaunchAdd(const at::Tensor& left, const at::Tensor& right, const at::Tensor& sum) {
    const aclrtStream stream = c10_npu::getCurrentNPUStream().stream(false);
    void* left_data = left.data_ptr();
    void* right_data = right.data_ptr();
    void* sum_data = sum.data_ptr();
    const auto n = static_cast<int32_t>(sum.numel());
    at_npu::native::OpCommand::RunOpApi("sim_test_add", [=]() -> int {
        return aclrtlaunch_sim_test_add(1, stream, left_data, right_data, sum_data, n);
    });
}

void AddOut(const at::Tensor& left, const at::Tensor& right, at::Tensor& sum) {
    const c10_npu::NPUGuard guard(sum.device());
    LaunchAdd(left, right, sum);
}

// A real Ascend C kernel, by its generated launch function.
void Scale(at::Tensor& x, int64_t factor) {
    const c10_npu::NPUGuard guard(x.device());
    const aclrtStream stream = c10_npu::getCurrentNPUStream().stream(false);
    void* data = x.data_ptr();
    const auto n = static_cast<int32_t>(x.numel());
    const auto by = static_cast<int32_t>(factor);
    at_npu::native::OpCommand::RunOpApi("sim_test_scale", [=]() -> int {
        return static_cast<int>(ACLRT_LAUNCH_KERNEL(sim_test_scale)(1, stream, data, n, by));
    });
}

// The mistake that a missing guard is: runs on whatever device is current.
void AddOutUnguarded(const at::Tensor& left, const at::Tensor& right, at::Tensor& sum) { LaunchAdd(left, right, sum); }

// The mistake that reading a tensor's memory on the host is.
int64_t HostRead(const at::Tensor& tensor) { return *static_cast<const volatile int32_t*>(tensor.data_ptr()); }

}  // namespace

TORCH_LIBRARY(npu_sim_test, library) {
    library.def("add_out(Tensor left, Tensor right, Tensor(a!) sum) -> ()");
    library.def("add_out_unguarded(Tensor left, Tensor right, Tensor(a!) sum) -> ()");
    library.def("scale(Tensor(a!) x, int factor) -> ()");
    library.def("host_read(Tensor tensor) -> int");
}

TORCH_LIBRARY_IMPL(npu_sim_test, PrivateUse1, library) {
    library.impl("add_out", AddOut);
    library.impl("add_out_unguarded", AddOutUnguarded);
    library.impl("scale", Scale);
    library.impl("host_read", HostRead);
}
