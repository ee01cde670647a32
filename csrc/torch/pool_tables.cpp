#include "torch/pool_tables.h"

#include "torch/check.h"

namespace dsv4 {

const char* const kTableNames[kNumPools] = {"full_table", "swa_table",      "c4_table",
                                            "c128_table", "c4_state_table", "c128_state_table"};

void check_pool_tables(const char* op, const PoolTables& tables) {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const at::Tensor& table = tables[pool];
        const char* name = kTableNames[pool];
        check::dim(op, name, table, 2);
        check::dtype(op, name, table, {at::kInt});
        check::same_device(op, name, table, kTableNames[kFull], tables[kFull]);
        check::contiguous_rows(op, name, table);
        TORCH_CHECK_VALUE(table.size(0) == tables[kFull].size(0), op, ": ", name, " has ", table.size(0),
                          " rows, expected ", tables[kFull].size(0), " like ", kTableNames[kFull]);
        TORCH_CHECK_VALUE(table.size(0) <= 1 || table.stride(0) >= table.size(1), op, ": ", name, " has strides ",
                          table.strides(), ", expected rows that do not overlap");
    }
}

int64_t row_elems(const at::Tensor& table) { return table.size(0) <= 1 ? table.size(1) : table.stride(0); }

}  // namespace dsv4
