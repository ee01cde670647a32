// The global memory of the six pools, by table order.
#pragma once

#include "common/pools.h"
#include "device/memory.h"

namespace dsv4::kernel {

// One address a pool. A pool that does not exist has an address that is never used.
struct PoolAddresses {
    GM_ADDR address[kNumPools];

    __aicore__ inline GlobalTensor<int32_t> tensor(int32_t pool, int64_t elems) const {
        return global<int32_t>(address[pool], static_cast<uint64_t>(elems));
    }
};

}  // namespace dsv4::kernel
