#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <optional>

#include "ops/write_req_tables/write_req_tables_index.h"

namespace dsv4 {

// Tensors of a call.
struct WriteTensors {
    std::array<at::Tensor, kNumPools> tables;  // those that are not written are undefined
    std::array<at::Tensor, kNumPools> loc;     // int32 slots, the flat intervals of all rows
    // Rows, [B] int32 or int64 each, in raw tokens.
    at::Tensor req_pool_indices;
    at::Tensor starts;
    at::Tensor ends;
    std::optional<at::Tensor> c4_state_starts;  // both or neither
    std::optional<at::Tensor> c128_state_starts;
};

extern const char* const kLocNames[kNumPools];

// Checks every argument of write_req_tables but the values in tensors, and sorts them by pool.
WriteReqTablesParams check_write_req_tables(at::TensorList tables, at::IntArrayRef addressing, int64_t max_context_len,
                                            at::TensorList loc, WriteTensors& tensors);

// Registers the op over a backend's run(params, tensors).
template <auto run>
void register_write_req_tables(torch::Library& library) {
    library.impl("write_req_tables",
                 [](at::TensorList tables, at::IntArrayRef addressing, int64_t max_context_len,
                    const at::Tensor& req_pool_indices, const at::Tensor& starts, const at::Tensor& ends,
                    at::TensorList loc, const std::optional<at::Tensor>& c4_state_starts,
                    const std::optional<at::Tensor>& c128_state_starts) {
                     WriteTensors tensors{{}, {}, req_pool_indices, starts, ends, c4_state_starts, c128_state_starts};
                     const WriteReqTablesParams p =
                         check_write_req_tables(tables, addressing, max_context_len, loc, tensors);
                     run(p, tensors);
                 });
}

}  // namespace dsv4
