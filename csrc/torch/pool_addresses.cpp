#include "torch/pool_addresses.h"

#include <algorithm>
#include <limits>

#include "torch/check.h"

namespace dsv4 {

const char* const kPoolNames[kNumPools] = {"full", "swa", "c4", "c128", "c4_state", "c128_state"};

namespace {

constexpr const char* kTables[kNumPools] = {"table of pool full", "table of pool swa",      "table of pool c4",
                                            "table of pool c128", "table of pool c4_state", "table of pool c128_state"};

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

int32_t shift_of(const char* op, const char* pool, const char* what, int64_t size) {
    TORCH_CHECK_VALUE(is_power_of_two(size) && size <= kInt32Max, op, ": ", what, " of pool ", pool, " is ", size,
                      ", expected a power of two from 1 up");
    return log2_of(size);
}

bool needs_tensor(int64_t kind) { return kind == kPages || kind == kSlots || kind == kMapped; }

void check_tensor(const char* op, const char* name, int64_t kind, const std::optional<at::Tensor>& table,
                  const char* on_name, const at::Tensor& on) {
    TORCH_CHECK_VALUE(table.has_value() == needs_tensor(kind), op, ": ", name,
                      table.has_value() ? " is a tensor" : " is None", ", expected ",
                      table.has_value() ? "None" : "a tensor", " for kind ", kind);
    if (!table.has_value()) {
        return;
    }
    check::integer(op, name, *table);
    check::dim(op, name, *table, kind == kMapped ? 1 : 2);
    check::same_device(op, name, *table, on_name, on);
    check::contiguous_rows(op, name, *table);
}

void check_room(const char* op, const char* name, int32_t pool, const PoolAddress& a, int64_t max_context_len) {
    if (a.kind == kPages && is_windowed_pool(pool)) {
        TORCH_CHECK_VALUE(a.columns >= 1, op, ": ", name, " has 0 columns, expected at least 1");
        return;
    }
    TORCH_CHECK_VALUE(units_in_table(a) >= units_in(max_context_len, pool), op, ": ", name, " has ", a.columns,
                      " columns for ", units_in_table(a), " units, expected room for ", units_in(max_context_len, pool),
                      " (max_context_len is ", max_context_len, ")");
}

PoolAddress address_of(const char* op, int32_t pool, const int64_t* fields, const std::optional<at::Tensor>& table) {
    const char* name = kPoolNames[pool];
    PoolAddress a{};
    a.kind = static_cast<int32_t>(fields[0]);
    a.page_shift = shift_of(op, name, "page size", fields[1]);
    TORCH_CHECK_VALUE(fields[2] >= 1 && fields[2] <= kInt32Max, op, ": unit columns of pool ", name, " are ", fields[2],
                      ", expected at least 1");
    a.unit_columns = static_cast<int32_t>(fields[2]);
    a.slot_shift = shift_of(op, name, "slots of an entry", fields[3]);
    a.ring_shift = shift_of(op, name, "ring", fields[4]);
    TORCH_CHECK_VALUE(fields[5] >= 0 && fields[5] < kNumPools, op, ": base of pool ", name, " is ", fields[5],
                      ", expected 0 <= pool < ", kNumPools);
    a.base = static_cast<int32_t>(fields[5]);
    a.requests = static_cast<int32_t>(kInt32Max);
    if (table.has_value()) {
        a.is_int64 = table->scalar_type() == at::kLong;
        TORCH_CHECK_VALUE(table->size(-1) <= kInt32Max || a.kind == kMapped, op, ": table of pool ", name, " has ",
                          table->size(-1), " columns, expected at most ", kInt32Max);
        TORCH_CHECK_VALUE(table->size(0) <= kInt32Max, op, ": table of pool ", name, " has ", table->size(0),
                          " rows, expected at most ", kInt32Max);
        a.columns = a.kind == kMapped ? 0 : static_cast<int32_t>(table->size(1));
        a.requests = static_cast<int32_t>(a.kind == kMapped ? kInt32Max : table->size(0));
        a.row_elems = a.kind == kMapped || table->size(0) <= 1 ? table->size(-1) : table->stride(0);
    }
    return a;
}

// Rules start from a pool whose slots a table, or a mapping of a table's, gives.
void check_base(const char* op, int32_t pool, const std::array<PoolAddress, kNumPools>& pools) {
    const PoolAddress& a = pools[pool];
    if (a.kind != kMapped && a.kind != kPageRing) {
        return;
    }
    const PoolAddress& base = pools[a.base];
    const bool table = base.kind == kPages || base.kind == kSlots;
    TORCH_CHECK_VALUE(table || (a.kind == kPageRing && base.kind == kMapped), op, ": base of pool ", kPoolNames[pool],
                      " is ", kPoolNames[a.base], " of kind ", base.kind, ", expected a pool with ",
                      a.kind == kMapped ? "a table" : "a table or a mapping");
    TORCH_CHECK_VALUE(tokens_per_unit(pool) == tokens_per_unit(a.base), op, ": base of pool ", kPoolNames[pool], " is ",
                      kPoolNames[a.base], ", expected a pool with a slot for as many tokens");
}

}  // namespace

PoolAddresses check_pool_addresses(const char* op, const c10::List<std::optional<at::Tensor>>& tables,
                                   at::IntArrayRef addressing, const char* on_name, const at::Tensor& on,
                                   int64_t max_context_len) {
    TORCH_CHECK_VALUE(tables.size() == kNumPools, op, ": tables has ", tables.size(), " entries, expected ", kNumPools);
    TORCH_CHECK_VALUE(addressing.size() == kNumPools * kAddressFields, op, ": addressing has ", addressing.size(),
                      " entries, expected ", kNumPools * kAddressFields);
    check::at_least(op, "max_context_len", max_context_len, 1);
    TORCH_CHECK_VALUE(max_context_len <= kInt32Max, op, ": max_context_len is ", max_context_len, ", expected at most ",
                      kInt32Max);
    PoolAddresses result{{}, {}, kInt32Max};
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const int64_t* fields = addressing.data() + pool * kAddressFields;
        TORCH_CHECK_VALUE(fields[0] >= kNoPool && fields[0] <= kBank, op, ": kind of pool ", kPoolNames[pool], " is ",
                          fields[0], ", expected 0 to ", kBank);
        const std::optional<at::Tensor> table = tables.get(pool);
        const char* name = kTables[pool];
        check_tensor(op, name, fields[0], table, on_name, on);
        PoolAddress& a = result.pools[pool];
        a = address_of(op, pool, fields, table);
        if (a.kind == kPages || a.kind == kSlots) {
            check_room(op, name, pool, a, max_context_len);
            result.max_requests = std::min<int64_t>(result.max_requests, a.requests);
        }
        if (table.has_value()) {
            result.tables[pool] = *table;
        }
    }
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        check_base(op, pool, result.pools);
    }
    return result;
}

}  // namespace dsv4
