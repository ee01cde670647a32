#include "torch/step_slot_tensors.h"

#include <ATen/ops/empty.h>

#include <limits>

#include "torch/check.h"

namespace dsv4 {
namespace {

int64_t check_pool(const char* op, const char* table_name, const at::Tensor& table, int64_t ratio,
                   const StepRowsParams& rows, const at::Tensor& req_pool_indices, const char* out_name,
                   const at::Tensor& out, int64_t entries) {
    const int64_t row_elems = check_request_table(op, table_name, table, ratio, rows, req_pool_indices);
    check_step_output(op, out_name, out, at::kInt, {pool_exists(row_elems) ? entries : 0}, req_pool_indices);
    return row_elems;
}

}  // namespace

int64_t tokens_of_slots(const SlotTables& tables, const SlotTensors& out) {
    const auto exists = [](const at::Tensor& table) { return table.dim() == 2 && table.size(1) != 0; };
    if (exists(tables.full)) {
        return out.out_full_loc.numel();
    }
    if (exists(tables.swa)) {
        return out.out_swa_loc.numel();
    }
    if (exists(tables.c4_state)) {
        return out.out_c4_state_loc.numel();
    }
    return exists(tables.c128_state) ? out.out_c128_state_loc.numel() : std::numeric_limits<int32_t>::max();
}

StepSlotsParams check_step_slots(const char* op, const StepRowsParams& rows, const at::Tensor& req_pool_indices,
                                 const SlotTables& tables, const SlotTensors& out) {
    const auto pool = [&](const char* table_name, const at::Tensor& table, int64_t ratio, const char* out_name,
                          const at::Tensor& loc, int64_t entries) {
        return check_pool(op, table_name, table, ratio, rows, req_pool_indices, out_name, loc, entries);
    };
    const int64_t tokens = rows.num_tokens;
    const int64_t c4_groups = out.out_c4_loc.numel();
    const int64_t c128_groups = out.out_c128_loc.numel();
    return StepSlotsParams{
        pool("full_table", tables.full, 1, "out_full_loc", out.out_full_loc, tokens),
        pool("swa_table", tables.swa, 1, "out_swa_loc", out.out_swa_loc, tokens),
        pool("c4_table", tables.c4, kRatioC4, "out_c4_loc", out.out_c4_loc, c4_groups),
        pool("c128_table", tables.c128, kRatioC128, "out_c128_loc", out.out_c128_loc, c128_groups),
        pool("c4_state_table", tables.c4_state, 1, "out_c4_state_loc", out.out_c4_state_loc, tokens),
        pool("c128_state_table", tables.c128_state, 1, "out_c128_state_loc", out.out_c128_state_loc, tokens),
        c4_groups,
        c128_groups};
}

SlotTensors empty_step_slots(const char* op, const at::Tensor& req_pool_indices, const SlotTables& tables,
                             int64_t num_tokens, int64_t c4_groups, int64_t c128_groups) {
    check::at_least(op, "num_tokens", num_tokens, 0);
    TORCH_CHECK_VALUE(num_tokens <= std::numeric_limits<int32_t>::max(), op, ": num_tokens is ", num_tokens,
                      ", expected at most ", std::numeric_limits<int32_t>::max());
    check::at_least(op, "c4_groups", c4_groups, 0);
    check::at_least(op, "c128_groups", c128_groups, 0);
    const at::TensorOptions int32 = req_pool_indices.options().dtype(at::kInt);
    const auto slots = [&](const char* name, const at::Tensor& table, int64_t entries) {
        check::dim(op, name, table, 2);
        return at::empty({table.size(1) != 0 ? entries : 0}, int32);
    };
    return SlotTensors{slots("full_table", tables.full, num_tokens),
                       slots("swa_table", tables.swa, num_tokens),
                       slots("c4_table", tables.c4, c4_groups),
                       slots("c128_table", tables.c128, c128_groups),
                       slots("c4_state_table", tables.c4_state, num_tokens),
                       slots("c128_state_table", tables.c128_state, num_tokens)};
}

TensorTuple<6> as_results(SlotTensors out) {
    return {std::move(out.out_full_loc), std::move(out.out_swa_loc),      std::move(out.out_c4_loc),
            std::move(out.out_c128_loc), std::move(out.out_c4_state_loc), std::move(out.out_c128_state_loc)};
}

}  // namespace dsv4
