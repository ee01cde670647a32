// Second pass over a step on the CPU: where its tokens, groups, states and windows stand (docs/spec.md, a step).
#pragma once

#include "cpu/pool_slots.h"
#include "cpu/step_scan.h"

namespace dsv4::cpu {

// Overwrites every output of slots that is asked for to its last entry. Expects a step that check_scanned_step accepts.
void write_step_slots(const ScannedStep& step, const StepParams& p, const StepTensors& tensors, const PoolSlots& slots);

}  // namespace dsv4::cpu
