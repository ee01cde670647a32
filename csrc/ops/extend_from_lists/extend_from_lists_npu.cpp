#include "ops/extend_from_lists/extend_from_lists.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_extend_from_lists.h"

namespace dsv4 {
namespace {

void launch_extend_from_lists(const ExtendFromListsParams& p, const ExtendTensors& tensors,
                              const ExtendedSlots& slots) {
    // Neither groups nor pages come without tokens.
    if (p.num_tokens == 0) {
        return;
    }
    const std::array memory{tensors.req_pool_indices,
                            tensors.prefix_lens.value_or(tensors.seq_lens),
                            tensors.seq_lens,
                            tensors.last_loc,
                            tensors.full_pages,
                            tensors.swa_pages,
                            tensors.c128_pages,
                            tensors.full_to_swa,
                            tensors.c128_table,
                            tensors.c128_owners,
                            slots.full,
                            slots.swa,
                            slots.c4,
                            slots.c128,
                            slots.c128_replaced};
    npu::launch_on(
        kExtendOp, memory, extend_from_lists_blocks(p, npu::vector_cores(tensors.full_to_swa)),
        [p = p, errors = npu::error_lanes(tensors.full_to_swa)](uint32_t blocks, void* stream, auto... at) mutable {
            return ACLRT_LAUNCH_KERNEL(extend_from_lists)(blocks, stream, at..., errors, &p);
        });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_extend_from_lists<&launch_extend_from_lists>(m); }

}  // namespace dsv4
