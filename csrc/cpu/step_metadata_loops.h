// Second pass over a step on the CPU: the outputs of compress_metadata (docs/spec.md, 3.1).
#pragma once

#include "cpu/step_scan.h"

namespace dsv4::cpu {

// Raises ValueError when a buffer holds fewer groups or pages than the step needs; touches nothing.
void check_metadata_capacity(const char* op, const ScannedStep& step, const StepMetadataParams& p);

// Overwrites every output to its last entry. Expects a step and buffers that have been checked.
void write_step_metadata(const ScannedStep& step, const StepMetadataParams& p, const MetadataTables& tables,
                         const MetadataTensors& out);

}  // namespace dsv4::cpu
