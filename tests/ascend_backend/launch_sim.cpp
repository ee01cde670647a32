// The launch seam over the device simulator: kernels run at once on the memory of CPU tensors, every byte that a kernel
// may touch is registered first, and what the simulator finds becomes an error of the op.
#include "torch/launch.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <vector>

#include "ascend_sim/c_api.h"
#include "common/device_error.h"

namespace {

constexpr int64_t kDefaultCores = 24;

int64_t simulated_cores = kDefaultCores;
int64_t forced_blocks = 0;

std::array<int32_t, dsv4::kErrorLanes * dsv4::kErrorLaneWords> error_words{};

struct Extent {
    uintptr_t begin;
    uintptr_t end;
};

// The bytes between a tensor's first and last element.
Extent extent_of(const at::Tensor& tensor) {
    int64_t last = 0;  // elements
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
        last += (tensor.size(dim) - 1) * tensor.stride(dim);
    }
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data_ptr());
    return {begin, begin + (last + 1) * tensor.element_size()};
}

// Tensors may be views of one storage: overlapping extents are registered as one.
void register_memory(at::TensorList memory) {
    std::vector<Extent> extents;
    for (const at::Tensor& tensor : memory) {
        if (tensor.defined() && tensor.numel() > 0) {
            extents.push_back(extent_of(tensor));
        }
    }
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    std::vector<Extent> merged;
    for (const Extent& extent : extents) {
        if (!merged.empty() && extent.begin < merged.back().end) {
            merged.back().end = std::max(merged.back().end, extent.end);
        } else {
            merged.push_back(extent);
        }
    }
    ascend_sim_clear_gm();
    for (const Extent& extent : merged) {
        ascend_sim_register_gm(reinterpret_cast<void*>(extent.begin), extent.end - extent.begin, "tensor", 1);
    }
    ascend_sim_register_gm(error_words.data(), sizeof(error_words), "error lanes", 1);
}

}  // namespace

namespace dsv4::npu {

int64_t vector_cores(const at::Tensor& on) { return simulated_cores; }

void* error_lanes(const at::Tensor& on) { return error_words.data(); }

void launch(const char* op, at::TensorList memory, int64_t blocks,
            std::function<uint32_t(uint32_t blocks, void* stream)> run) {
    register_memory(memory);
    ascend_sim_clear_errors();
    const uint32_t code = run(static_cast<uint32_t>(forced_blocks > 0 ? forced_blocks : blocks), nullptr);
    TORCH_CHECK(code == 0, op, ": the simulated device found: ", ascend_sim_errors_json());
}

}  // namespace dsv4::npu

extern "C" {

// Cores that the simulated device reports; 0 restores the default.
void dsv4_sim_set_cores(int64_t cores) { simulated_cores = cores > 0 ? cores : kDefaultCores; }

// Blocks of every launch whatever the op asked for, so that some idle or all work is in one; 0 leaves it to the op.
void dsv4_sim_force_blocks(int64_t blocks) { forced_blocks = blocks; }

int32_t* dsv4_sim_error_words() { return error_words.data(); }

}  // extern "C"
