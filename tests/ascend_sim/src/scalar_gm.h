// The scalar data cache: stale reads, and stores that only reach memory when a line is written back whole.
#pragma once

#include <cstdint>

#include "gm.h"

namespace ascend_sim {

// A copy that writes [from, end) of an allocation must not meet a cache line that scalar stores have touched.
void CheckLinesOfStores(const Call& call, Pipe pipe, const GmAccess& access, uint64_t from, uint64_t end);

}  // namespace ascend_sim
