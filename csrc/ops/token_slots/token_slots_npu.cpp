#include "ops/token_slots/token_slots.h"
#include "torch/launch.h"
#include "torch/launch_memory.h"

// Names the parameter structs above without declaring them.
#include "aclrtlaunch_token_slots.h"

namespace dsv4 {
namespace {

void launch_token_slots(const TokenSlotsParams& checked, const TokenSlotsTensors& t) {
    if (checked.num_tables == 0 || checked.num_tokens == 0) {
        return;
    }
    const int64_t cores = npu::vector_cores(t.cu_seqlens);
    TokenSlotsParams p = checked;
    p.tile_tokens = tile_tokens(p, cores);
    npu::LaunchMemory memory;
    TokenSlotsAddresses at{};
    at.cu_seqlens = memory.add(t.cu_seqlens);
    at.seq_lens = memory.add(t.seq_lens);
    for (size_t i = 0; i < t.tables.size(); ++i) {
        at.tables[i] = memory.add(t.tables[i]);
        at.first_pages[i] = memory.add(t.first_pages[i]);
        at.slots[i] = memory.add(t.slots[i]);
    }
    npu::launch(kTokenSlotsOp, memory.tensors(), token_slots_blocks(p, cores),
                [p = p, at = at, errors = npu::error_lanes(t.cu_seqlens)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(token_slots)(blocks, stream, errors, &at, &p);
                });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_token_slots<&launch_token_slots>(m); }

}  // namespace dsv4
