#include "cpu/step_slot_loops.h"
#include "ops/verify_bundle/verify_bundle.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "verify_bundle";

void run(const VerifyBundleParams& p, const StepInputs& inputs, const SlotTables& tables, const SlotTensors& out) {
    const cpu::ScannedStep step = cpu::scan_step(kOp, p.rows, inputs);
    cpu::check_slot_capacity(kOp, step, p.slots);
    cpu::write_step_slots(step, p.slots, tables, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_verify_bundle<&run>(m); }

}  // namespace dsv4
