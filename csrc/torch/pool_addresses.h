// How an op is told where the slots of each pool stand, and the checks of it (common/pool_address.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "common/pool_address.h"

namespace dsv4 {

// What describes one pool beside its tensor, in one number: Python reads a list of many at every call. Sizes are powers
// of two, as their logarithms. From the lowest bit on: kind (3 bits), slots of a page, entries from one unit to the
// next and slots of an entry, slots of a ring (5 bits each), base pool (3 bits).
constexpr int32_t kKindBits = 3;
constexpr int32_t kSizeBits = 5;
constexpr int32_t kBaseBits = 3;

struct PoolAddresses {
    std::array<at::Tensor, kNumPools> tables;  // undefined where the kind has none
    std::array<PoolAddress, kNumPools> pools;
    int64_t max_requests;  // rows that every table has; INT32_MAX without any table
};

extern const char* const kPoolNames[kNumPools];

// tables: those of the pools whose kind has one, in the order of the pools; addressing: a number a pool, as above.
// Raises ValueError for anything that is not as it must be (docs/spec.md, addressing). All tensors must be on the device of
// `on`; a table must have room for max_context_len tokens unless it is a ring of a windowed pool.
PoolAddresses check_pool_addresses(const char* op, at::TensorList tables, at::IntArrayRef addressing,
                                   const char* on_name, const at::Tensor& on, int64_t max_context_len);

}  // namespace dsv4
