// Everything that verify_bundle writes (docs/spec.md, 3.2).
#pragma once

#include "device/pools.h"
#include "device/step_entries.h"

namespace dsv4::kernel {

__aicore__ inline void write_step_slots(StepRows& rows, StepEntries& entries, const StepSlotsParams& p,
                                        const PoolAddresses& tables, const PoolAddresses& out) {
    const int64_t tokens = rows.params().num_tokens;
    entries.slots<1>(tables.address[kFull], p.full_row_elems, out.address[kFull], tokens);
    entries.slots<1>(tables.address[kSwa], p.swa_row_elems, out.address[kSwa], tokens);
    entries.slots<kRatioC4>(tables.address[kC4], p.c4_row_elems, out.address[kC4], p.c4_capacity_groups);
    entries.slots<kRatioC128>(tables.address[kC128], p.c128_row_elems, out.address[kC128], p.c128_capacity_groups);
    entries.slots<1>(tables.address[kC4State], p.c4_state_row_elems, out.address[kC4State], tokens);
    entries.slots<1>(tables.address[kC128State], p.c128_state_row_elems, out.address[kC128State], tokens);
}

// Groups that fit into the outputs of the pools that exist.
__aicore__ inline StepTotals slot_limit(const StepRowsParams& rows, const StepSlotsParams& p) {
    return StepTotals{rows.num_tokens, pool_exists(p.c4_row_elems) ? p.c4_capacity_groups : INT32_MAX,
                      pool_exists(p.c128_row_elems) ? p.c128_capacity_groups : INT32_MAX};
}

}  // namespace dsv4::kernel
