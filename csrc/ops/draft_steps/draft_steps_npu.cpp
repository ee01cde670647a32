#include "ops/draft_steps/draft_steps.h"
#include "torch/device_limits.h"
#include "torch/launch.h"
#include "torch/launch_memory.h"

// These name the parameter structs above without declaring them.
#include "aclrtlaunch_draft_steps.h"
#include "aclrtlaunch_draft_steps_apart.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "draft_steps";

void check_device(const char* rope, const DraftStepsParams& p) {
    TORCH_CHECK_VALUE(p.rope_dim <= kMaxRopeDim, kOp, ": ", rope, " has rows of ", p.rope_dim, ", expected at most ",
                      kMaxRopeDim, " on a device");
    check::device_pages(kOp, p.pools);
}

void launch_draft_steps(const DraftStepsParams& p, const DraftStepsTensors& t) {
    check_device("rope_cos", p);
    TORCH_CHECK_VALUE(draft_tile_rows(p) > 0 && (!drafts_from_table(p) || draft_pitch_elems(p) <= kMaxDeviceLanes), kOp,
                      ": topk is ", p.topk, " and num_steps ", p.num_steps,
                      ", expected drafts of one request that fit into a core's local memory");
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

void launch_drafts_apart(const DraftsApartParams& p, const DraftsApartArguments& a) {
    check_device("rope", p.steps);
    npu::LaunchMemory memory;
    DraftsApartAddresses at{};
    at.block_table = memory.add(a.block_table);
    at.last_positions = memory.add(a.last_positions);
    at.seq_lens = memory.add(a.seq_lens);
    for (int32_t base = 0; base < p.num_bases; ++base) {
        at.rope_cos[base] = memory.add(a.rope[2 * base]);
        at.rope_sin[base] = memory.add(a.rope[2 * base + 1]);
    }
    for (int32_t step = 0; step < p.steps.num_steps; ++step) {
        DraftStepAddresses& of_step = at.steps[step];
        of_step.slots = memory.add(a.slots[step]);
        of_step.kv_lens = memory.add(a.kv_lens[step]);
        of_step.cu_seqlens = p.has_offsets != 0 ? memory.add(a.cu_seqlens[step]) : 0;
        for (int32_t base = 0; base < p.num_bases; ++base) {
            of_step.cos[base] = memory.add(a.rope_rows[rope_rows_of(base, 0, step, p)]);
            of_step.sin[base] = memory.add(a.rope_rows[rope_rows_of(base, 1, step, p)]);
        }
    }
    npu::launch(kOp, memory.tensors(), draft_blocks(p.steps, npu::vector_cores(a.seq_lens)),
                [p = p, at = at, errors = npu::error_lanes(a.seq_lens)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(draft_steps_apart)(blocks, stream, errors, &at, &p);
                });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    register_draft_steps<&launch_draft_steps>(m);
    register_drafts_apart<&launch_drafts_apart>(m);
}

}  // namespace dsv4
