// The request tables of all six pools as ops take them, and their checks.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "common/pools.h"

namespace dsv4 {

// int32 [max_requests, columns] in table order; columns is 0 for a pool that does not exist.
struct PoolTables {
    std::array<at::Tensor, kNumPools> tables;

    const at::Tensor& operator[](int32_t pool) const { return tables[pool]; }
};

extern const char* const kTableNames[kNumPools];

// Checks dtype, shape, device and layout of every table, which all match those of `full`.
void check_pool_tables(const char* op, const PoolTables& tables);

// Distance between two rows of a table, in elements.
int64_t row_elems(const at::Tensor& table);

}  // namespace dsv4
