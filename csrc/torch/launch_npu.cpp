// The launch seam over torch_npu.
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "acl/acl.h"
#include "common/device_error.h"
#include "torch/launch.h"
#include "torch_npu/csrc/core/npu/NPUGuard.h"
#include "torch_npu/csrc/core/npu/NPUStream.h"
#include "torch_npu/csrc/framework/OpCommand.h"

namespace dsv4::npu {
namespace {

constexpr size_t kMaxDevices = 64;

// What the library keeps for each device.
struct DeviceState {
    std::once_flag once;
    int64_t vector_cores = 0;
    at::Tensor error_lanes;  // int32 [kErrorLanes, kErrorLaneWords]
};

DeviceState& state_of(const at::Device& device) {
    // Never destroyed: torch_npu may be gone when static objects are.
    static auto* const states = new std::array<DeviceState, kMaxDevices>();
    const auto index = static_cast<size_t>(device.index());
    TORCH_CHECK(index < kMaxDevices, "dsv4_npu_ops: device index is ", index, ", expected less than ", kMaxDevices);
    DeviceState& state = (*states)[index];
    std::call_once(state.once, [&] {
        const c10_npu::NPUGuard guard(device);
        const aclError code = aclrtGetDeviceInfo(static_cast<uint32_t>(device.index()), ACL_DEV_ATTR_VECTOR_CORE_NUM,
                                                 &state.vector_cores);
        TORCH_CHECK(code == ACL_SUCCESS && state.vector_cores > 0, "dsv4_npu_ops: the vector cores of ", device,
                    " are not known: error ", code, ", count ", state.vector_cores);
        // A copy from the host: a fill on the device would be an operator of its own.
        state.error_lanes = at::zeros({kErrorLanes, kErrorLaneWords}, at::kInt).to(device);
    });
    return state;
}

}  // namespace

int64_t vector_cores(const at::Tensor& on) {
    // A block of any launch has a lane of its own.
    return std::min<int64_t>(state_of(on.device()).vector_cores, kErrorLanes);
}

void* error_lanes(const at::Tensor& on) { return state_of(on.device()).error_lanes.data_ptr(); }

void launch(const char* op, at::TensorList memory, int64_t blocks,
            std::function<uint32_t(uint32_t blocks, void* stream)> run) {
    const at::Device device = memory.front().device();
    for (const at::Tensor& tensor : memory) {
        TORCH_CHECK_VALUE(tensor.device() == device, op, ": a tensor is on ", tensor.device(), ", expected ", device,
                          " like the first one");
    }
    const c10_npu::NPUGuard guard(device);
    // The raw handle: the launch itself goes through torch_npu's queue and thereby keeps its place.
    void* stream = c10_npu::getCurrentNPUStream().stream(false);
    at_npu::native::OpCommand::RunOpApi(op, [run = std::move(run), blocks, stream]() -> int {
        return static_cast<int>(run(static_cast<uint32_t>(blocks), stream));
    });
}

}  // namespace dsv4::npu
