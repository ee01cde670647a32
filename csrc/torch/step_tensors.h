// Checks of tables of slots, for the ops that still take them.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>

#include "common/step_rows.h"
#include "torch/check.h"
#include "torch/tensor_tuple.h"

namespace dsv4 {

DSV4_HOST_DEVICE constexpr bool pool_exists(int64_t row_elems) { return row_elems != 0; }

inline int64_t check_request_table(const char* op, const char* name, const at::Tensor& table, int64_t ratio,
                                   const StepRowsParams& rows, const at::Tensor& req_pool_indices) {
    check::dim(op, name, table, 2);
    check::dtype(op, name, table, {at::kInt});
    check::same_device(op, name, table, "req_pool_indices", req_pool_indices);
    TORCH_CHECK_VALUE(table.size(0) == rows.max_requests, op, ": ", name, " has ", table.size(0), " rows, expected ",
                      rows.max_requests, " like the other tables");
    const int64_t columns = table.size(1);
    if (columns == 0) {
        return 0;
    }
    check::contiguous_rows(op, name, table);
    TORCH_CHECK_VALUE(columns >= rows.max_context_len / ratio, op, ": ", name, " has ", columns,
                      " columns, expected at least ", rows.max_context_len / ratio, " for max_context_len ",
                      rows.max_context_len);
    if (rows.max_requests <= 1) {
        return columns;  // the stride of a single row means nothing
    }
    TORCH_CHECK_VALUE(table.stride(0) >= columns, op, ": ", name, " has strides ", table.strides(),
                      ", expected rows that do not overlap");
    return table.stride(0);
}

inline void check_step_output(const char* op, const char* name, const at::Tensor& out, at::ScalarType dtype,
                              at::IntArrayRef shape, const at::Tensor& req_pool_indices) {
    check::dtype(op, name, out, {dtype});
    check::same_device(op, name, out, "req_pool_indices", req_pool_indices);
    check::shape(op, name, out, shape);
    check::contiguous(op, name, out);
}

inline int32_t check_page_size(const char* op, int64_t page_size) {
    TORCH_CHECK_VALUE(is_power_of_two(page_size) && page_size <= std::numeric_limits<int32_t>::max(), op,
                      ": page_size is ", page_size, ", expected a power of two from 1 up");
    return log2_of(page_size);
}

}  // namespace dsv4
