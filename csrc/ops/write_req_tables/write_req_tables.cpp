#include "ops/write_req_tables/write_req_tables.h"

#include <torch/library.h>

#include "torch/check.h"

namespace dsv4 {

const char* const kLocNames[kNumPools] = {"full_loc", "swa_loc", "c4_loc", "c128_loc", "c4_state_loc", "c128_state_loc"};

namespace {

constexpr char kOp[] = "write_req_tables";

// Returns whether the values are int64.
int32_t check_row_values(const char* name, const at::Tensor& values, const at::Tensor& req_pool_indices,
                         const PoolTables& tables) {
    check::dim(kOp, name, values, 1);
    check::integer(kOp, name, values);
    check::same_device(kOp, name, values, kTableNames[kFull], tables[kFull]);
    check::shape(kOp, name, values, req_pool_indices.sizes());
    check::contiguous(kOp, name, values);
    return values.scalar_type() == at::kLong;
}

}  // namespace

WriteReqTablesParams check_write_req_tables(const PoolTables& tables, const WriteRows& rows,
                                            const PoolLoc& loc) {
    check_pool_tables(kOp, tables);
    const at::Tensor& requests = rows.req_pool_indices;
    WriteReqTablesParams p{};
    p.request_is_int64 = check_row_values("req_pool_indices", requests, requests, tables);
    p.start_is_int64 = check_row_values("starts", rows.starts, requests, tables);
    p.end_is_int64 = check_row_values("ends", rows.ends, requests, tables);
    TORCH_CHECK_VALUE(rows.c4_state_starts.has_value() == rows.c128_state_starts.has_value(), kOp,
                      ": state_starts are given for one state pool, expected both or none");
    if (rows.c4_state_starts.has_value()) {
        p.has_state_starts = 1;
        p.c4_state_start_is_int64 = check_row_values("c4_state_starts", *rows.c4_state_starts, requests, tables);
        p.c128_state_start_is_int64 = check_row_values("c128_state_starts", *rows.c128_state_starts, requests, tables);
    }
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        check::dim(kOp, kLocNames[pool], loc[pool], 1);
        check::dtype(kOp, kLocNames[pool], loc[pool], {at::kInt});
        check::same_device(kOp, kLocNames[pool], loc[pool], kTableNames[kFull], tables[kFull]);
        check::contiguous(kOp, kLocNames[pool], loc[pool]);
        p.row_elems[pool] = row_elems(tables[pool]);
        p.loc_elems[pool] = loc[pool].size(0);
        p.columns[pool] = tables[pool].size(1);
    }
    p.max_requests = tables[kFull].size(0);
    p.num_rows = requests.size(0);
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "write_req_tables(Tensor(a!) full_table, Tensor(b!) swa_table, Tensor(c!) c4_table, Tensor(d!) c128_table,"
        " Tensor(e!) c4_state_table, Tensor(f!) c128_state_table, Tensor req_pool_indices, Tensor starts, Tensor ends,"
        " Tensor full_loc, Tensor swa_loc, Tensor c4_loc, Tensor c128_loc, Tensor c4_state_loc, Tensor c128_state_loc,"
        " *, Tensor? c4_state_starts=None, Tensor? c128_state_starts=None) -> ()");
}

}  // namespace dsv4
