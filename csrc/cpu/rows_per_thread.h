// Grain of at::parallel_for.
#pragma once

#include <cstdint>

namespace dsv4::cpu {

// Rows that a thread should have, at least 1: a second one costs more than it does below `work`. row_work, in the same
// units, may be 0.
inline int64_t rows_per_thread(int64_t work, int64_t row_work) { return 1 + work / (row_work + 1); }

}  // namespace dsv4::cpu
