// Copies to global memory that add to, or take the maximum or minimum with, what is there.
#pragma once

#include <cstdint>

#include "ascend_sim/copy_engine.h"

namespace ascend_sim {

void CombineAtomic(const Call& call, uint8_t* target, const uint8_t* source, uint32_t bytes, ElementKind kind,
                   uint32_t elem_bytes);

}  // namespace ascend_sim
