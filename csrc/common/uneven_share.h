// Shares of items that do not all take equally long.
#pragma once

#include "common/launch_plan.h"

namespace dsv4 {

// Where part `part` of `parts` begins if the first `dear` of `count` items take `times` the time of the others.
DSV4_HOST_DEVICE constexpr int64_t uneven_share_begin(int64_t count, int64_t dear, int64_t times, int64_t align,
                                                      int64_t part, int64_t parts) {
    const int64_t work = (count + (times - 1) * dear) * part / parts;
    const int64_t items = work < times * dear ? work / times : work - (times - 1) * dear;
    return min_of<int64_t>(count, round_up<int64_t>(items, align));
}

// block_share for outputs whose first `dear` items are read and written, and whose others are only written.
DSV4_HOST_DEVICE constexpr BlockShare uneven_block_share(int64_t count, int64_t dear, int64_t align, int64_t block,
                                                         int64_t blocks) {
    return BlockShare{uneven_share_begin(count, dear, 2, align, block, blocks),
                      uneven_share_begin(count, dear, 2, align, block + 1, blocks)};
}

}  // namespace dsv4
