#include "cpu/step_checks.h"
#include "cpu/step_metadata_loops.h"
#include "cpu/step_slot_loops.h"

namespace dsv4 {
namespace {

void run(const StepParams& p, const StepTensors& tensors) {
    const cpu::ScannedStep step = cpu::scan_step("step", p, tensors);
    const cpu::PoolSlots slots(p.pools, tensors.tables);
    cpu::check_scanned_step("step", step, p, slots);
    cpu::write_step_slots(step, p, tensors, slots);
    cpu::write_step_metadata(step, p, tensors, slots);
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_step<&run>(m); }

}  // namespace dsv4
