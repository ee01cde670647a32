#include "ops/advance_step/advance_step.h"
#include "torch/device_limits.h"
#include "torch/launch.h"
#include "torch/launch_memory.h"

// Names the parameter structs above without declaring them.
#include "aclrtlaunch_advance_step.h"

namespace dsv4 {
namespace {

void launch_advance_step(const AdvanceStepParams& p, const AdvanceTensors& t) {
    constexpr char kOp[] = "advance_step";
    if (p.num_rows == 0) {
        return;
    }
    check::device_pages(kOp, p.pools);
    TORCH_CHECK_VALUE(p.num_samples <= kTokenTileWords / token_words(p), kOp, ": token_ids has ", p.num_samples,
                      " columns, expected at most ", kTokenTileWords / token_words(p), " on a device");
    npu::LaunchMemory memory;
    AdvanceStepAddresses at{};
    memory.add(t.tables, at.tables);
    at.requests = memory.add(t.req_pool_indices);
    at.lengths = memory.add(t.seq_lens);
    at.accepted = memory.add(t.accepted_lens);
    at.tokens = memory.add(t.token_ids);
    at.cu_seqlens = memory.add(t.cu_seqlens);
    at.drafts = memory.add(t.num_draft_tokens);
    at.backup = memory.add(t.backup_tokens);
    at.hidden = memory.add(t.hidden_states);
    memory.add(t.fields, at.fields);
    npu::launch(kOp, memory.tensors(), advance_blocks(p, npu::vector_cores(t.seq_lens)),
                [p = p, at = at, errors = npu::error_lanes(t.seq_lens)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(advance_step)(blocks, stream, errors, &at, &p);
                });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_advance_step<&launch_advance_step>(m); }

}  // namespace dsv4
