// Second pass over a step on the CPU: what attention and compressors need to know of it (docs/spec.md, a step).
#pragma once

#include "cpu/pool_slots.h"
#include "cpu/step_scan.h"

namespace dsv4::cpu {

// Overwrites every output that is asked for to its last entry: row vectors, positions, RoPE rows and page tables.
// Expects a step that check_scanned_step accepts.
void write_step_metadata(const ScannedStep& step, const StepParams& p, const StepTensors& tensors,
                         const PoolSlots& slots);

}  // namespace dsv4::cpu
