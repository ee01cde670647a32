#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "ops/write_req_tables/write_req_tables_index.h"
#include "torch/pool_tables.h"

namespace dsv4 {

// Rows of a call, [B] int32 or int64 each, in raw tokens.
struct WriteRows {
    const at::Tensor& req_pool_indices;
    const at::Tensor& starts;
    const at::Tensor& ends;
    const std::optional<at::Tensor>& c4_state_starts;  // both or neither
    const std::optional<at::Tensor>& c128_state_starts;
};

// Checks every argument of write_req_tables but the values in tensors; touches no data. loc: int32 in table order.
WriteReqTablesParams check_write_req_tables(const PoolTables& tables, const WriteRows& rows,
                                            const std::array<at::Tensor, kNumPools>& loc);

}  // namespace dsv4
