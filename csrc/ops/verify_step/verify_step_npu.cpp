#include "ops/verify_step/verify_step.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_verify_step.h"

namespace dsv4 {
namespace {

void launch_verify_step(VerifyStepParams p, const StepInputs& inputs, const SlotTables& tables, const RopeTables& rope,
                        const SlotTensors& slots, const MetadataTensors& m, const GroupRopeTensors& rows) {
    constexpr char kOp[] = "verify_step";
    check::device_step(kOp, p.rows);
    TORCH_CHECK_VALUE(p.rope_dim <= kMaxRopeDim, kOp, ": rope_cos has rows of ", p.rope_dim, ", expected at most ",
                      kMaxRopeDim, " on a device");
    p.rows.max_seq_len = covered_length(p.metadata, p.rows.max_seq_len);
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
                            rope.cos,
                            rope.sin,
                            slots.out_full_loc,
                            slots.out_swa_loc,
                            slots.out_c4_loc,
                            slots.out_c128_loc,
                            slots.out_c4_state_loc,
                            slots.out_c128_state_loc,
                            m.positions_c4,
                            m.positions_c128,
                            m.c4_loc,
                            m.c128_loc,
                            m.start_pos,
                            m.seqused,
                            m.cu_seqlens,
                            m.positions,
                            m.kv_lens,
                            m.swa_page_table,
                            m.c4_page_table,
                            m.c128_page_table,
                            m.c4_state_page_table,
                            m.c128_state_page_table,
                            rows.c4_cos,
                            rows.c4_sin,
                            rows.c128_cos,
                            rows.c128_sin};
    npu::launch_on(kOp, memory, blocks_for(verify_step_bytes(p), kGrainBytes, npu::vector_cores(tables.full)),
                   [p, errors = npu::error_lanes(tables.full)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(verify_step)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_verify_step<&launch_verify_step>(m); }

}  // namespace dsv4
