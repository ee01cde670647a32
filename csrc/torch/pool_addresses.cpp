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

bool needs_tensor(int64_t kind) { return kind == kPages || kind == kSlots || kind == kMapped; }

void check_tensor(const char* op, const char* name, int64_t kind, const at::Tensor& table, const char* on_name,
                  const at::Tensor& on) {
    check::integer(op, name, table);
    check::dim(op, name, table, kind == kMapped ? 1 : 2);
    check::same_device(op, name, table, on_name, on);
    check::contiguous_rows(op, name, table);
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

// The next `bits` of a number, which are taken off it.
int8_t take_bits(int64_t& number, int32_t bits) {
    const int64_t taken = number & ((1 << bits) - 1);
    number >>= bits;
    return static_cast<int8_t>(taken);
}

PoolAddress address_of(const char* op, int32_t pool, int64_t number) {
    PoolAddress a{};
    int64_t rest = number;
    a.kind = take_bits(rest, kKindBits);
    a.page_shift = take_bits(rest, kSizeBits);
    a.slot_shift = take_bits(rest, kSizeBits);
    a.ring_shift = take_bits(rest, kSizeBits);
    a.base = take_bits(rest, kBaseBits);
    a.requests = static_cast<int32_t>(kInt32Max);
    const bool sizes_fit = a.page_shift < 31 && a.slot_shift < 31 && a.ring_shift < 31;
    TORCH_CHECK_VALUE(rest == 0 && a.kind <= kBank && sizes_fit && a.base < kNumPools, op, ": address of pool ",
                      kPoolNames[pool], " is ", number, ", expected a number of RequestTables");
    return a;
}

void add_table(const char* op, int32_t pool, const at::Tensor& table, PoolAddress& a) {
    a.is_int64 = table.scalar_type() == at::kLong;
    if (a.kind == kMapped) {
        a.row_elems = table.size(0);
        return;
    }
    TORCH_CHECK_VALUE(table.size(1) <= kInt32Max, op, ": table of pool ", kPoolNames[pool], " has ", table.size(1),
                      " columns, expected at most ", kInt32Max);
    TORCH_CHECK_VALUE(table.size(0) <= kInt32Max, op, ": table of pool ", kPoolNames[pool], " has ", table.size(0),
                      " rows, expected at most ", kInt32Max);
    a.columns = static_cast<int32_t>(table.size(1));
    a.requests = static_cast<int32_t>(table.size(0));
    a.row_elems = table.size(0) <= 1 ? table.size(1) : table.stride(0);
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

PoolAddresses check_pool_addresses(const char* op, at::TensorList tables, at::IntArrayRef addressing,
                                   const char* on_name, const at::Tensor& on, int64_t max_context_len) {
    TORCH_CHECK_VALUE(addressing.size() == kNumPools, op, ": addressing has ", addressing.size(), " entries, expected ",
                      kNumPools);
    check::at_least(op, "max_context_len", max_context_len, 1);
    TORCH_CHECK_VALUE(max_context_len <= kInt32Max, op, ": max_context_len is ", max_context_len, ", expected at most ",
                      kInt32Max);
    PoolAddresses result{{}, {}, kInt32Max};
    size_t num_tables = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        PoolAddress& a = result.pools[pool];
        a = address_of(op, pool, addressing[pool]);
        if (!needs_tensor(a.kind) || num_tables++ >= tables.size()) {
            continue;
        }
        const at::Tensor& table = tables[num_tables - 1];
        const char* name = kTables[pool];
        check_tensor(op, name, a.kind, table, on_name, on);
        add_table(op, pool, table, a);
        if (a.kind != kMapped) {
            check_room(op, name, pool, a, max_context_len);
            result.max_requests = std::min<int64_t>(result.max_requests, a.requests);
        }
        result.tables[pool] = table;
    }
    TORCH_CHECK_VALUE(num_tables == tables.size(), op, ": tables has ", tables.size(), " entries, expected ",
                      num_tables, ", one for each pool whose kind has one");
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        check_base(op, pool, result.pools);
    }
    return result;
}

}  // namespace dsv4
