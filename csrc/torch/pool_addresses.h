// How an op is told where the slots of each pool stand, and the checks of it (common/pool_address.h).
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "common/pool_address.h"

namespace dsv4 {

// Integers that describe one pool beside its tensor: kind, slots of a page, unit_columns, slots of an entry, slots of a
// ring, base pool.
constexpr size_t kAddressFields = 6;

struct PoolAddresses {
    std::array<at::Tensor, kNumPools> tables;  // undefined where the kind has none
    std::array<PoolAddress, kNumPools> pools;
    int64_t max_requests;  // rows that every table has; INT32_MAX without any table
};

extern const char* const kPoolNames[kNumPools];

// tables: by pool, None where the kind has no tensor; addressing: kAddressFields integers a pool. Raises ValueError for
// anything that is not as docs/spec.md, addressing, says. All tensors must be on the device of `on`; a table must have
// room for max_context_len tokens unless it is a ring of a windowed pool.
PoolAddresses check_pool_addresses(const char* op, const c10::List<std::optional<at::Tensor>>& tables,
                                   at::IntArrayRef addressing, const char* on_name, const at::Tensor& on,
                                   int64_t max_context_len);

}  // namespace dsv4
