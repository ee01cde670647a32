// How the work of a launch is cut: over blocks, and into tiles that fit into a core's UB.
#pragma once

#include "common/integer.h"

namespace dsv4 {

// What a kernel may take of UB for its buffers: 184 KB less what the toolkit of later versions reserves, and less 2 KB
// for an error lane and the rounding of buffers.
constexpr int64_t kUbBudgetBytes = 188160 - 2048;
constexpr int64_t kUbBlockBytes = 32;     // the unit of alignment in UB
constexpr int64_t kMaxCopyBlocks = 4095;  // rows that one copy moves

DSV4_HOST_DEVICE constexpr int64_t ub_row_bytes(int64_t bytes) {
    return round_up<int64_t>(bytes, kUbBlockBytes);
}

// Blocks for `work` units of which one block should have at least `grain`; at least 1.
DSV4_HOST_DEVICE constexpr int64_t blocks_for(int64_t work, int64_t grain, int64_t cores) {
    return max_of<int64_t>(1, min_of<int64_t>(cores, ceil_div<int64_t>(work, grain)));
}

// What another block adds to the time of a launch, and what a block moves in a nanosecond, loads and stores together:
// figures of the model behind docs/simulated_cost.md.
constexpr int64_t kBlockLaunchNs = 140;
constexpr int64_t kBytesPerNs = 40;

// A block with less to do costs more than it takes off the others: it reads the same arguments and rows.
constexpr int64_t kLeastBlockNs = 2000;

// Blocks for work that takes one block `work_ns` and that all share: work / blocks + blocks * launch is least where the
// two are equal.
DSV4_HOST_DEVICE constexpr int64_t blocks_for_work(int64_t work_ns, int64_t cores) {
    const int64_t most = min_of(cores, work_ns / kLeastBlockNs);
    int64_t blocks = 1;
    while (blocks < most && (blocks + 1) * (blocks + 1) <= work_ns / kBlockLaunchNs) {
        ++blocks;
    }
    return blocks;
}

// As many of `blocks` blocks as it takes for the longest share of `count` items to be no longer: with few items a block,
// fewer blocks have more equal shares and are as soon done.
DSV4_HOST_DEVICE constexpr int64_t even_blocks(int64_t count, int64_t blocks) {
    return count == 0 ? 1 : ceil_div<int64_t>(count, ceil_div<int64_t>(count, blocks));
}

// The share [begin, end) of block `block` of `count` items, cut at multiples of `align` items: neighbours then write
// disjoint stretches of memory.
struct BlockShare {
    int64_t begin;
    int64_t end;
};

DSV4_HOST_DEVICE constexpr BlockShare block_share(int64_t count, int64_t align, int64_t block, int64_t blocks) {
    const int64_t chunks = ceil_div<int64_t>(count, align);
    return BlockShare{min_of<int64_t>(count, chunks * block / blocks * align),
                      min_of<int64_t>(count, chunks * (block + 1) / blocks * align)};
}

}  // namespace dsv4
