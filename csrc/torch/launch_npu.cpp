// The launch seam over torch_npu, and what Python asks about the library.
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <tuple>

#include "acl/acl.h"
#include "common/device_error.h"
#include "torch/launch.h"
#include "torch_npu/csrc/core/npu/NPUGraphsUtils.h"
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

DeviceState& slot_of(int64_t device_index) {
    // Never destroyed: torch_npu may be gone when static objects are.
    static auto* const states = new std::array<DeviceState, kMaxDevices>();
    TORCH_CHECK_VALUE(device_index >= 0 && device_index < static_cast<int64_t>(kMaxDevices),
                      "dsv4_npu_ops: device index is ", device_index, ", expected 0 <= index < ", kMaxDevices);
    return (*states)[static_cast<size_t>(device_index)];
}

// As the toolkit spells it; the runtime writes Ascend910B3 for ascend910b3. Empty when the runtime does not know.
std::string device_soc() {
    const char* name = aclrtGetSocName();
    std::string soc = name == nullptr ? "" : name;
    std::transform(soc.begin(), soc.end(), soc.begin(), [](unsigned char c) { return std::tolower(c); });
    return soc;
}

// A kernel binary for another architecture is not registered, and launching it reports success without running it.
bool kernels_run_on(const std::string& soc) {
    static const std::regex kinds(DSV4_SOC_KINDS);
    return std::regex_match(soc, kinds);
}

void check_soc() {
    const std::string soc = device_soc();
    TORCH_CHECK(kernels_run_on(soc), "dsv4_npu_ops: the NPU library was built for " DSV4_SOC_VERSION
                ", and this device is ", soc.empty() ? "unknown to the runtime" : soc,
                "; expected a library built with DSV4_SOC_VERSION set to the device's kind");
}

DeviceState& state_of(const at::Device& device) {
    DeviceState& state = slot_of(device.index());
    std::call_once(state.once, [&] {
        const c10_npu::NPUGuard guard(device);
        check_soc();
        TORCH_CHECK(c10_npu::currentStreamCaptureStatusMayInitCtx() == c10_npu::CaptureStatus::None,
                    "dsv4_npu_ops: the first op on ", device,
                    " came inside a graph capture, expected one before it: the first op makes the device's error"
                    " words, by a copy that a capture forbids");
        const aclError code = aclrtGetDeviceInfo(static_cast<uint32_t>(device.index()), ACL_DEV_ATTR_VECTOR_CORE_NUM,
                                                 &state.vector_cores);
        TORCH_CHECK(code == ACL_SUCCESS && state.vector_cores > 0, "dsv4_npu_ops: the vector cores of ", device,
                    " are not known: error ", code, ", count ", state.vector_cores);
        // A copy from the host: a fill on the device would be an operator of its own.
        state.error_lanes = at::zeros({kErrorLanes, kErrorLaneWords}, at::kInt).to(device);
    });
    return state;
}

std::tuple<std::string, std::string, bool> soc_versions() {
    const std::string soc = device_soc();
    return {DSV4_SOC_VERSION, soc, kernels_run_on(soc)};
}

// Nothing for a device that has run no op.
std::optional<at::Tensor> error_lanes_of(int64_t device_index) {
    const at::Tensor& lanes = slot_of(device_index).error_lanes;
    return lanes.defined() ? std::optional<at::Tensor>(lanes) : std::nullopt;
}

// For measurements: blocks of every launch, if the environment says so when the first one comes.
int64_t chosen_blocks(int64_t blocks) {
    static const int64_t chosen = [] {
        const char* text = std::getenv("DSV4_BLOCKS");
        return text == nullptr ? int64_t{0} : std::clamp<int64_t>(std::atoll(text), 0, kErrorLanes);
    }();
    return chosen == 0 ? blocks : chosen;
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
    at_npu::native::OpCommand::RunOpApi(op, [run = std::move(run), blocks = chosen_blocks(blocks), stream]() -> int {
        return static_cast<int>(run(static_cast<uint32_t>(blocks), stream));
    });
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def("npu_soc_versions() -> (str built_for, str device, bool runs)", &soc_versions);
    m.def("npu_error_lanes(int device_index) -> Tensor?", &error_lanes_of);
}

}  // namespace dsv4::npu
