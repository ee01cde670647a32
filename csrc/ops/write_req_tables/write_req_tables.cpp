#include "ops/write_req_tables/write_req_tables.h"

#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "torch/check.h"
#include "torch/pool_addresses.h"

namespace dsv4 {

const char* const kLocNames[kNumPools] = {"full_loc", "swa_loc",      "c4_loc",
                                          "c128_loc", "c4_state_loc", "c128_state_loc"};

namespace {

constexpr char kOp[] = "write_req_tables";

// Returns whether the values are int64.
int32_t check_row_values(const char* name, const at::Tensor& values, const at::Tensor& req_pool_indices) {
    check::dim(kOp, name, values, 1);
    check::integer(kOp, name, values);
    check::same_device(kOp, name, values, "req_pool_indices", req_pool_indices);
    check::shape(kOp, name, values, req_pool_indices.sizes());
    check::contiguous(kOp, name, values);
    return values.scalar_type() == at::kLong;
}

void check_written(int32_t pool, const PoolAddress& a) {
    TORCH_CHECK_VALUE(a.kind == kNoPool || a.kind == kPages || a.kind == kSlots, kOp, ": kind of pool ",
                      kPoolNames[pool], " is ", a.kind, ", expected 0 (not written), 1 (pages) or 2 (slots)");
}

void check_rows_apart(int32_t pool, const at::Tensor& table) {
    TORCH_CHECK_VALUE(table.size(0) <= 1 || table.stride(0) >= table.size(1), kOp, ": table of pool ", kPoolNames[pool],
                      " has strides ", table.strides(), ", expected rows that do not overlap");
}

}  // namespace

WriteReqTablesParams check_write_req_tables(at::TensorList tables, at::IntArrayRef addressing, int64_t max_context_len,
                                            at::TensorList loc, WriteTensors& tensors) {
    const at::Tensor& requests = tensors.req_pool_indices;
    WriteReqTablesParams p{};
    const auto add_input = [&](int32_t input, const char* name, const at::Tensor& values) {
        p.wide_inputs = static_cast<int8_t>(p.wide_inputs | check_row_values(name, values, requests) << input);
    };
    add_input(kWriteRequests, "req_pool_indices", requests);
    add_input(kWriteStarts, "starts", tensors.starts);
    add_input(kWriteEnds, "ends", tensors.ends);
    TORCH_CHECK_VALUE(tensors.c4_state_starts.has_value() == tensors.c128_state_starts.has_value(), kOp,
                      ": state_starts are given for one state pool, expected both or none");
    if (tensors.c4_state_starts.has_value()) {
        p.has_state_starts = 1;
        add_input(kWriteC4StateStarts, "c4_state_starts", *tensors.c4_state_starts);
        add_input(kWriteC128StateStarts, "c128_state_starts", *tensors.c128_state_starts);
    }
    PoolAddresses addresses =
        check_pool_addresses(kOp, tables, addressing, "req_pool_indices", requests, max_context_len);
    TORCH_CHECK_VALUE(loc.size() == kNumPools, kOp, ": loc has ", loc.size(), " entries, expected ", kNumPools);
    p.max_end = std::numeric_limits<int32_t>::max();
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        check::dim(kOp, kLocNames[pool], loc[pool], 1);
        check::dtype(kOp, kLocNames[pool], loc[pool], {at::kInt});
        check::same_device(kOp, kLocNames[pool], loc[pool], "req_pool_indices", requests);
        check::contiguous(kOp, kLocNames[pool], loc[pool]);
        const PoolAddress& a = addresses.pools[pool];
        check_written(pool, a);
        p.pools[pool] = WrittenPool{a.row_elems, loc[pool].size(0), a.columns,   static_cast<int8_t>(a.kind),
                                    a.is_int64,  a.page_shift,      a.slot_shift};
        if (is_written(pool, p)) {
            check_rows_apart(pool, addresses.tables[pool]);
            const int64_t units = units_in_table(a);
            if (units < units_in(max_context_len, pool)) {
                p.rings = static_cast<int8_t>(p.rings | 1 << pool);
            } else {
                const int64_t end = units * tokens_per_unit(pool) + tokens_per_unit(pool) - 1;
                p.max_end = static_cast<int32_t>(std::min<int64_t>(p.max_end, end));
            }
        }
        tensors.loc[pool] = loc[pool];
    }
    p.slot_totals = totals_of_kind(kSlots, p);
    p.page_totals = totals_of_kind(kPages, p);
    tensors.tables = std::move(addresses.tables);
    p.max_requests = static_cast<int32_t>(addresses.max_requests);
    p.num_rows = requests.size(0);
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "write_req_tables(Tensor(a!)[] tables, int[] addressing, int max_context_len, Tensor req_pool_indices,"
        " Tensor starts, Tensor ends, Tensor[] loc, *, Tensor? c4_state_starts=None, Tensor? c128_state_starts=None)"
        " -> ()");
}

}  // namespace dsv4
