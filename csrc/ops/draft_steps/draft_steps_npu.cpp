#include "ops/draft_steps/draft_steps.h"
#include "torch/device_limits.h"
#include "torch/launch.h"
#include "torch/launch_memory.h"

// Names the parameter structs above without declaring them.
#include "aclrtlaunch_draft_steps.h"

namespace dsv4 {
namespace {

void launch_draft_steps(const DraftStepsParams& p, const DraftStepsTensors& t) {
    constexpr char kOp[] = "draft_steps";
    TORCH_CHECK_VALUE(p.rope_dim <= kMaxRopeDim, kOp, ": rope_cos has rows of ", p.rope_dim, ", expected at most ",
                      kMaxRopeDim, " on a device");
    TORCH_CHECK_VALUE(draft_tile_rows(p) > 0 && (!drafts_from_table(p) || draft_pitch_elems(p) <= kMaxDeviceLanes), kOp,
                      ": topk is ", p.topk, " and num_steps ", p.num_steps,
                      ", expected drafts of one request that fit into a core's local memory");
    check::device_pages(kOp, p.pools);
    if (p.num_entries == 0) {
        return;
    }
    npu::LaunchMemory memory;
    DraftStepsAddresses at{};
    memory.add(t.tables, at.tables);
    at.reservation = memory.add(t.reservation);
    at.lengths = memory.add(t.seq_lens);
    at.requests = memory.add(t.req_pool_indices);
    at.rope_cos = memory.add(t.rope_cos);
    at.rope_sin = memory.add(t.rope_sin);
    at.slots = memory.add(t.slots);
    at.positions = memory.add(t.positions);
    at.kv_lens = memory.add(t.kv_lens);
    at.cos = memory.add(t.cos);
    at.sin = memory.add(t.sin);
    npu::launch(kOp, memory.tensors(), draft_blocks(p, npu::vector_cores(t.slots)),
                [p = p, at = at, errors = npu::error_lanes(t.slots)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(draft_steps)(blocks, stream, errors, &at, &p);
                });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_draft_steps<&launch_draft_steps>(m); }

}  // namespace dsv4
