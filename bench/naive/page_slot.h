// The slot of one unit in a table of int32 pages, for naive kernels.
#pragma once

#include "common/pool_address.h"
#include "scalar_run.h"

namespace dsv4::naive {

// 0 where the request has no page.
__aicore__ inline int32_t page_slot(const PoolAddress& a, uint64_t table, int64_t request, int64_t unit) {
    const int64_t entries = a.row_elems * (a.requests - 1) + a.columns;
    const int64_t entry = page_entry_elems(request, page_of(unit, a.page_shift), a);
    const int32_t page = element<int32_t>(kernel::at(table), entries, entry);
    return page > 0 ? static_cast<int32_t>(slot_of(page, unit, a.page_shift)) : 0;
}

}  // namespace dsv4::naive
