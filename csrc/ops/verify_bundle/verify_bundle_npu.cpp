#include "ops/verify_bundle/verify_bundle.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_verify_bundle.h"

namespace dsv4 {
namespace {

void launch_verify_bundle(const VerifyBundleParams& p, const StepInputs& inputs, const SlotTables& tables,
                          const SlotTensors& out) {
    constexpr char kOp[] = "verify_bundle";
    check::device_step(kOp, p.rows);
    // The uniform form has no widths to read.
    const at::Tensor widths = inputs.operand().value_or(inputs.seq_lens);
    const std::array memory{tables.full,
                            tables.swa,
                            tables.c4,
                            tables.c128,
                            tables.c4_state,
                            tables.c128_state,
                            inputs.req_pool_indices,
                            inputs.seq_lens,
                            widths,
                            out.out_full_loc,
                            out.out_swa_loc,
                            out.out_c4_loc,
                            out.out_c128_loc,
                            out.out_c4_state_loc,
                            out.out_c128_state_loc};
    npu::launch_on(kOp, memory, blocks_for(slot_bytes(p.rows, p.slots), kGrainBytes, npu::vector_cores(tables.full)),
                   [p = p, errors = npu::error_lanes(tables.full)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(verify_bundle)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_verify_bundle<&launch_verify_bundle>(m); }

}  // namespace dsv4
