// What a device asks of host numbers beyond the checks that all backends share.
#pragma once

#include "common/step_launch.h"
#include "torch/check.h"

namespace dsv4::check {

// A core keeps a few numbers of every row in its fast memory.
inline void device_rows(const char* op, int64_t num_rows) {
    TORCH_CHECK_VALUE(num_rows <= kMaxDeviceRows, op, ": req_pool_indices has ", num_rows,
                      " entries, expected at most ", kMaxDeviceRows, " on a device");
}

// The tokens of all rows where the host knows them; otherwise the device finds rows that do not fit.
inline void device_step(const char* op, const StepRowsParams& rows) {
    device_rows(op, rows.num_rows);
    const int64_t width = form_has_operand(rows.form) ? 0 : rows.width;
    TORCH_CHECK_VALUE(rows.num_rows == 0 || width <= rows.num_tokens / rows.num_rows, op, ": num_tokens is ",
                      rows.num_tokens, " (entries of the token-aligned outputs), expected at least ", width,
                      " for each of ", rows.num_rows, " rows");
}

}  // namespace dsv4::check
