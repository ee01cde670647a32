#include "ops/step/step.h"
#include "ops/step/step_plan.h"
#include "torch/device_limits.h"
#include "torch/launch.h"
#include "torch/launch_memory.h"

// Names the parameter structs above without declaring them.
#include "aclrtlaunch_fill_step.h"
#include "aclrtlaunch_fill_uniform_step.h"

namespace dsv4 {
namespace {

// What a core keeps in UB, and the bits of a number there, bound what a device takes.
void check_device_limits(const char* op, const StepParams& p) {
    check::device_step(op, p.rows);
    TORCH_CHECK_VALUE(p.rope_dim <= kMaxRopeDim, op, ": rope_cos has rows of ", p.rope_dim, ", expected at most ",
                      kMaxRopeDim, " on a device");
    const int32_t longest = max_of(p.token_rope_dim[0], p.token_rope_dim[1]);
    TORCH_CHECK_VALUE(longest <= kMaxRopeDim, op, ": RoPE tables of tokens have rows of ", longest,
                      ", expected at most ", kMaxRopeDim, " on a device");
    check::device_pages(op, p.pools);
    const int32_t widest = max_of(p.window_columns, max_of(p.state_columns[0], p.state_columns[1]));
    TORCH_CHECK_VALUE(widest <= kMaxDeviceLanes, op, ": rows of state or window slots have ", widest,
                      " columns, expected at most ", kMaxDeviceLanes, " on a device");
}

// A device puts a dummy page where entries of the table are, and makes pages of them all.
void check_dummy_pages(const char* op, const StepParams& p) {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const int64_t most = int64_t{INT32_MAX} >> entry_page_shift(p.pools[pool]);
        TORCH_CHECK_VALUE(
            p.page_columns[pool] == 0 || (p.dummy_pages[pool] <= most && p.dummy_pages[pool] >= -most - 1), op,
            ": dummy_pages is ", p.dummy_pages[pool], " for ", kPoolNames[pool], ", expected ", -most - 1, " to ", most,
            " on a device, whose slots fit int32");
    }
}

void launch_step(const StepParams& described, const StepTensors& t) {
    constexpr char kOp[] = "step";
    check_device_limits(kOp, described);
    check_dummy_pages(kOp, described);
    StepParams p = described;
    const bool uniform = takes_uniform(p);
    plan_launch(p, uniform);
    npu::LaunchMemory memory;
    StepAddresses at{};
    memory.add(t.tables, at.tables);
    at.requests = memory.add(t.req_pool_indices);
    at.lengths = memory.add(t.seq_lens);
    at.operands = memory.add(t.operand);
    at.rope_cos = memory.add(t.rope_cos);
    at.rope_sin = memory.add(t.rope_sin);
    memory.add(t.token_rope, at.token_rope);
    memory.add(t.fields, at.fields);
    npu::launch(
        kOp, memory.tensors(), step_blocks(p, uniform, npu::vector_cores(t.seq_lens)),
        [p = p, at = at, uniform, errors = npu::error_lanes(t.seq_lens)](uint32_t blocks, void* stream) mutable {
            return uniform ? ACLRT_LAUNCH_KERNEL(fill_uniform_step)(blocks, stream, errors, &at, &p)
                           : ACLRT_LAUNCH_KERNEL(fill_step)(blocks, stream, errors, &at, &p);
        });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_step<&launch_step>(m); }

}  // namespace dsv4
