// Everything that verify_bundle writes (docs/spec.md, 3.2).
#pragma once

#include "device/pools.h"
#include "device/step_entries.h"

namespace dsv4::kernel {

__aicore__ inline void write_step_slots(StepRows& rows, StepEntries& entries, const StepSlotsParams& p,
                                        const PoolAddresses& tables, const PoolAddresses& out) {
    const SlotTable token_pools[] = {
        {tables.address[kFull], p.full_row_elems, out.address[kFull]},
        {tables.address[kSwa], p.swa_row_elems, out.address[kSwa]},
        {tables.address[kC4State], p.c4_state_row_elems, out.address[kC4State]},
        {tables.address[kC128State], p.c128_state_row_elems, out.address[kC128State]},
    };
    const SlotTable c4[] = {{tables.address[kC4], p.c4_row_elems, out.address[kC4]}};
    const SlotTable c128[] = {{tables.address[kC128], p.c128_row_elems, out.address[kC128]}};
    entries.slots<1>(token_pools, rows.params().num_tokens);
    entries.slots<kRatioC4>(c4, p.c4_capacity_groups);
    entries.slots<kRatioC128>(c128, p.c128_capacity_groups);
}

// Groups that fit into the outputs of the pools that exist.
__aicore__ inline StepTotals slot_limit(const StepRowsParams& rows, const StepSlotsParams& p) {
    return StepTotals{rows.num_tokens, pool_exists(p.c4_row_elems) ? p.c4_capacity_groups : INT32_MAX,
                      pool_exists(p.c128_row_elems) ? p.c128_capacity_groups : INT32_MAX};
}

}  // namespace dsv4::kernel
