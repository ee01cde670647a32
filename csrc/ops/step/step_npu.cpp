#include <vector>

#include "ops/step/step.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter structs above without declaring them.
#include "aclrtlaunch_step.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "step";

// What a core keeps in UB, and the bits of a number there, bound what a device takes.
void check_device_limits(const StepParams& p) {
    check::device_step(kOp, p.rows);
    TORCH_CHECK_VALUE(p.rope_dim <= kMaxRopeDim, kOp, ": rope_cos has rows of ", p.rope_dim, ", expected at most ",
                      kMaxRopeDim, " on a device");
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        TORCH_CHECK_VALUE(p.pools[pool].page_shift <= kMaxDevicePageShift, kOp, ": page size of pool ", kPoolNames[pool],
                          " is ", int64_t{1} << p.pools[pool].page_shift, ", expected at most ",
                          int64_t{1} << kMaxDevicePageShift, " on a device");
    }
    const int32_t widest = max_of(p.window_columns, max_of(p.state_columns[0], p.state_columns[1]));
    TORCH_CHECK_VALUE(widest <= kMaxDeviceLanes, kOp, ": rows of state or window slots have ", widest,
                      " columns, expected at most ", kMaxDeviceLanes, " on a device");
}

class Addresses {
  public:
    uint64_t of(const at::Tensor& tensor) {
        if (!tensor.defined()) {
            return 0;
        }
        memory.push_back(tensor);
        return reinterpret_cast<uint64_t>(tensor.data_ptr());
    }

    std::vector<at::Tensor> memory;  // what the kernel reads or writes
};

void launch_step(const StepParams& p, const StepTensors& t) {
    check_device_limits(p);
    Addresses addresses;
    StepAddresses at{};
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        at.tables[pool] = addresses.of(t.tables[pool]);
    }
    at.requests = addresses.of(t.req_pool_indices);
    at.lengths = addresses.of(t.seq_lens);
    at.operands = addresses.of(t.operand);
    at.rope_cos = addresses.of(t.rope_cos);
    at.rope_sin = addresses.of(t.rope_sin);
    for (int32_t field = 0; field < kNumStepFields; ++field) {
        at.fields[field] = addresses.of(t.fields[field]);
    }
    npu::launch(kOp, addresses.memory, blocks_for(step_bytes(p), kGrainBytes, npu::vector_cores(t.seq_lens)),
                [p = p, at = at, errors = npu::error_lanes(t.seq_lens)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(step)(blocks, stream, errors, &at, &p);
                });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_step<&launch_step>(m); }

}  // namespace dsv4
