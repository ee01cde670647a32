#include "cpu/step_slot_loops.h"

#include <algorithm>

namespace dsv4::cpu {
namespace {

// out: [T] int32 slots of the tokens, 0 for those of padding rows and behind the last row.
void write_token_slots(const ScannedStep& step, const at::Tensor& table, int64_t row_elems, const at::Tensor& out) {
    if (!pool_exists(row_elems)) {
        return;
    }
    const int32_t* slots = table.const_data_ptr<int32_t>();
    int32_t* target = out.mutable_data_ptr<int32_t>();
    int64_t written = 0;
    for (const ScannedRow& row : step.rows) {
        if (is_padding(row)) {
            continue;
        }
        std::fill(target + written, target + row.token_begin, 0);
        const int32_t* source = slots + row.request * row_elems + row.start;
        std::copy(source, source + row.num_new, target + row.token_begin);
        written = row.token_begin + row.num_new;
    }
    std::fill(target + written, target + out.size(0), 0);
}

}  // namespace

void check_slot_capacity(const char* op, const ScannedStep& step, const StepSlotsParams& p) {
    if (pool_exists(p.c4_row_elems)) {
        check_group_capacity(op, "out_c4_loc", p.c4_capacity_groups, step.c4_groups, kRatioC4);
    }
    if (pool_exists(p.c128_row_elems)) {
        check_group_capacity(op, "out_c128_loc", p.c128_capacity_groups, step.c128_groups, kRatioC128);
    }
}

void write_step_slots(const ScannedStep& step, const StepSlotsParams& p, const SlotTables& tables,
                      const SlotTensors& out) {
    write_token_slots(step, tables.full, p.full_row_elems, out.out_full_loc);
    write_token_slots(step, tables.swa, p.swa_row_elems, out.out_swa_loc);
    write_group_slots<kRatioC4>(step, tables.c4, p.c4_row_elems, out.out_c4_loc);
    write_group_slots<kRatioC128>(step, tables.c128, p.c128_row_elems, out.out_c128_loc);
    write_token_slots(step, tables.c4_state, p.c4_state_row_elems, out.out_c4_state_loc);
    write_token_slots(step, tables.c128_state, p.c128_state_row_elems, out.out_c128_state_loc);
}

}  // namespace dsv4::cpu
