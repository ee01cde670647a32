#include <cstring>

#include "cpu/step_metadata_loops.h"
#include "cpu/step_slot_loops.h"
#include "ops/verify_step/verify_step.h"

namespace dsv4 {
namespace {

void check_group_positions(const cpu::ScannedStep& step, const VerifyStepParams& p) {
    TORCH_CHECK_INDEX(step.group_positions_end <= p.max_pos, "verify_step: positions_c4 reaches ",
                      step.group_positions_end - 1, ", expected 0 <= position < ", p.max_pos, " (rows of rope_cos)");
}

// positions: [capacity] int64; out: [capacity, D]. The zero tail gets the row of position 0, a rotation by nothing.
void write_rope_rows(const at::Tensor& positions, const at::Tensor& table, const at::Tensor& out,
                     const VerifyStepParams& p) {
    const int64_t* rows = positions.const_data_ptr<int64_t>();
    const float* source = table.const_data_ptr<float>();
    float* target = out.mutable_data_ptr<float>();
    const int64_t num_rows = positions.size(0);
    for (int64_t i = 0; i < num_rows; ++i) {
        std::memcpy(target + rope_row_offset_elems(i, p), source + rope_row_offset_elems(rows[i], p),
                    p.rope_dim * sizeof(float));
    }
}

void run(const VerifyStepParams& p, const StepInputs& inputs, const SlotTables& tables, const RopeTables& rope,
         const SlotTensors& slots, const MetadataTensors& metadata, const GroupRopeTensors& rows) {
    const cpu::ScannedStep step = cpu::scan_step("verify_step", p.rows, inputs);
    cpu::check_metadata_capacity("verify_step", step, p.metadata);
    cpu::check_slot_capacity("verify_step", step, p.slots);
    check_group_positions(step, p);
    cpu::write_step_slots(step, p.slots, tables, slots);
    cpu::write_step_metadata(step, p.metadata, {tables.swa, tables.c4, tables.c128, tables.c4_state, tables.c128_state},
                             metadata);
    write_rope_rows(metadata.positions_c4, rope.cos, rows.c4_cos, p);
    write_rope_rows(metadata.positions_c4, rope.sin, rows.c4_sin, p);
    write_rope_rows(metadata.positions_c128, rope.cos, rows.c128_cos, p);
    write_rope_rows(metadata.positions_c128, rope.sin, rows.c128_sin, p);
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_verify_step<&run>(m); }

}  // namespace dsv4
