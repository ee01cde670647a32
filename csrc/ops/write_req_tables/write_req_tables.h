#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

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

// int32 slots in table order, the flat intervals of all rows.
using PoolLoc = std::array<at::Tensor, kNumPools>;

extern const char* const kLocNames[kNumPools];

// Checks every argument of write_req_tables but the values in tensors; touches no data.
WriteReqTablesParams check_write_req_tables(const PoolTables& tables, const WriteRows& rows,
                                            const PoolLoc& loc);

// Registers the op over a backend's run(params, tables, rows, loc).
template <auto run>
void register_write_req_tables(torch::Library& library) {
    library.impl(
        "write_req_tables",
        [](const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
           const at::Tensor& c128_table, const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
           const at::Tensor& req_pool_indices, const at::Tensor& starts, const at::Tensor& ends,
           const at::Tensor& full_loc, const at::Tensor& swa_loc, const at::Tensor& c4_loc, const at::Tensor& c128_loc,
           const at::Tensor& c4_state_loc, const at::Tensor& c128_state_loc,
           const std::optional<at::Tensor>& c4_state_starts, const std::optional<at::Tensor>& c128_state_starts) {
            const PoolTables tables{{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
            const WriteRows rows{req_pool_indices, starts, ends, c4_state_starts, c128_state_starts};
            const PoolLoc loc{full_loc, swa_loc, c4_loc, c128_loc, c4_state_loc, c128_state_loc};
            run(check_write_req_tables(tables, rows, loc), tables, rows, loc);
        });
}

}  // namespace dsv4
