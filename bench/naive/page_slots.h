// Slots by tables of pages, one element read for each. Other kinds of tables, and int64 entries, are not handled.
#pragma once

#include "common/pool_address.h"
#include "scalar_run.h"

namespace dsv4::naive {

class PageSlots {
  public:
    __aicore__ inline PageSlots(const PoolAddress (&pools)[kNumPools], const uint64_t (&tables)[kNumPools])
        : pools_(pools), tables_(tables) {}

    __aicore__ inline int32_t page(int32_t pool, int64_t request, int64_t page) const {
        const PoolAddress& a = pools_[pool];
        return element<int32_t>(kernel::at(tables_[pool]), a.requests * a.row_elems,
                                page_entry_elems(request, page, a));
    }

    __aicore__ inline int32_t slot(int32_t pool, int64_t request, int64_t unit, int32_t dummy) const {
        const int32_t shift = pools_[pool].page_shift;
        const int32_t found = page(pool, request, page_of(unit, shift));
        return found > 0 ? static_cast<int32_t>(slot_of(found, unit, shift)) : dummy;
    }

  private:
    const PoolAddress (&pools_)[kNumPools];
    const uint64_t (&tables_)[kNumPools];
};

}  // namespace dsv4::naive
