// What a step on the CPU still checks once its rows are known, before anything is written.
#pragma once

#include "cpu/pool_slots.h"
#include "cpu/step_scan.h"

namespace dsv4::cpu {

// Raises ValueError where an output holds less than the step brings, where a row needs more live pages than a ring of
// columns has, or where a mapping ends before a slot that it is asked for; IndexError where the RoPE tables end before a
// group.
void check_scanned_step(const char* op, const ScannedStep& step, const StepParams& p, const PoolSlots& slots);

}  // namespace dsv4::cpu
