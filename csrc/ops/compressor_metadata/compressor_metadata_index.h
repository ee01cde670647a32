// Compressed groups of a step that another engine's block table addresses: parameters, launch plan and index
// arithmetic, shared by the CPU loops and the device kernel. Blocks here are pages without a reserved block 0.
#pragma once

#include "common/compress.h"
#include "common/element_type.h"
#include "common/launch_plan.h"

struct CompressorMetadataParams {
    int64_t num_rows;             // rows of the outputs
    int64_t num_reqs;             // requests that are read
    int64_t max_pos;              // rows of the RoPE tables
    int64_t block_columns;        // W: columns of kv_block_table
    int64_t block_row_elems;      // stride between two rows of kv_block_table
    int64_t block_size;           // groups (slots) of a block
    int64_t ratio;                // raw tokens of a group
    int32_t block_shift;          // log2 of block_size, or -1 when it is no power of two
    int32_t rope_dim;             // D
    int32_t pairs;                // slot_mapping is (block, offset), else flat
    int32_t cu_seqlens_is_int64;  // int32 otherwise
    int32_t start_pos_is_int64;   // int32 otherwise
    int32_t table_type;           // element type of the RoPE tables, see element_type.h
};

namespace dsv4 {

constexpr int64_t kSlotMappingFlat = 1;
constexpr int64_t kSlotMappingPairs = 2;

constexpr int64_t kInt32Max = 2147483647;

// A request that cannot be read. The host raises; a device lets it bring no group.
constexpr int32_t kRequestValid = 0;
constexpr int32_t kDecreasingCuSeqlens = 1;
constexpr int32_t kTooManyTokens = 2;
constexpr int32_t kStartTooLarge = 3;
// What else a device reports: groups past the last row, and a block whose slots do not fit int32.
constexpr int32_t kTooManyGroups = 4;
constexpr int32_t kSlotTooLarge = 5;

DSV4_HOST_DEVICE constexpr int32_t request_fault(int64_t begin, int64_t end, int64_t start_pos) {
    if (end < begin) {
        return kDecreasingCuSeqlens;
    }
    if (begin < 0 ? end > kInt32Max + begin : end - begin > kInt32Max) {
        return kTooManyTokens;
    }
    return start_pos > kInt32Max ? kStartTooLarge : kRequestValid;
}

// Groups that one request completes: [first, first + count).
struct CompletedGroups {
    int64_t first;
    int64_t count;
};

// num_new >= 0. A negative start_pos brings no group.
DSV4_HOST_DEVICE constexpr CompletedGroups completed_groups(int64_t start_pos, int64_t num_new, int64_t ratio) {
    if (start_pos < 0) {
        return CompletedGroups{0, 0};
    }
    const int64_t first = groups_in(start_pos, ratio);
    return CompletedGroups{first, groups_in(start_pos + num_new, ratio) - first};
}

DSV4_HOST_DEVICE constexpr int64_t block_column(int64_t group, const CompressorMetadataParams& p) {
    return p.block_shift >= 0 ? group >> p.block_shift : group / p.block_size;
}

DSV4_HOST_DEVICE constexpr int64_t block_offset(int64_t group, const CompressorMetadataParams& p) {
    return group - block_column(group, p) * p.block_size;
}

DSV4_HOST_DEVICE constexpr int64_t block_entry_offset_elems(int64_t request, int64_t column,
                                                            const CompressorMetadataParams& p) {
    return request * p.block_row_elems + column;
}

// A group past either table gets a dummy row.
DSV4_HOST_DEVICE constexpr bool group_in_tables(int64_t group, const CompressorMetadataParams& p) {
    return block_column(group, p) < p.block_columns && group_position(group, p.ratio) < p.max_pos;
}

DSV4_HOST_DEVICE constexpr int64_t flat_slot(int64_t block, int64_t offset, const CompressorMetadataParams& p) {
    return block * p.block_size + offset;
}

// What a dummy row says. Both forms mean slot -1: the pair is the one that flat_slot maps to it.
constexpr int64_t kDummyBlock = -1;

DSV4_HOST_DEVICE constexpr int64_t dummy_offset(const CompressorMetadataParams& p) { return p.block_size - 1; }

// Whether every slot of a block fits the flat mapping. A pair has no such limit.
DSV4_HOST_DEVICE constexpr bool block_fits(int64_t block, const CompressorMetadataParams& p) {
    return p.pairs != 0 || flat_slot(block, p.block_size - 1, p) <= kInt32Max;
}

DSV4_HOST_DEVICE constexpr int64_t slot_mapping_offset_elems(int64_t row, const CompressorMetadataParams& p) {
    return p.pairs ? 2 * row : row;
}

// Groups that one request completes in the rows [begin, end) of the outputs, and their first row.
struct GroupRun {
    int64_t first;
    int64_t count;
    int64_t row;
};

// groups: all of the request's, from output row `row` on.
DSV4_HOST_DEVICE constexpr GroupRun groups_in_rows(const CompletedGroups& groups, int64_t row, int64_t begin,
                                                   int64_t end) {
    const int64_t from = max_of(row, begin);
    const int64_t to = min_of(row + groups.count, end);
    return GroupRun{groups.first + (from - row), max_of<int64_t>(0, to - from), from};
}

// Columns of the block table that hold the blocks of a run.
DSV4_HOST_DEVICE constexpr int64_t block_columns_of(const GroupRun& run, const CompressorMetadataParams& p) {
    const int64_t end = min_of(block_column(run.first + run.count - 1, p) + 1, p.block_columns);
    return max_of<int64_t>(0, end - block_column(run.first, p));
}

// Requests that a kernel reads at a time.
constexpr int64_t kRequestChunk = 1024;
constexpr int64_t kRequestChunkBytes = (2 * kRequestChunk + 8) * 8;

// Elements from one row of a tile to the next.
DSV4_HOST_DEVICE constexpr int64_t compressor_pitch_elems(const CompressorMetadataParams& p) {
    return round_up<int64_t>(p.rope_dim, kUbBlockBytes / element_bytes(p.table_type));
}

// UB of an output row: cos and sin, a slot, and block table entries. A run of n groups has at most n columns, and its
// first one begins a 32-byte block.
constexpr int64_t kColumnsPerRow = 8;

DSV4_HOST_DEVICE constexpr int64_t compressor_row_bytes(const CompressorMetadataParams& p) {
    return 2 * compressor_pitch_elems(p) * element_bytes(p.table_type) + 2 * 4 + kColumnsPerRow * 4;
}

// Output rows of a tile, a multiple of 8 so that every buffer of it starts aligned; 0 when a row is too long for UB.
DSV4_HOST_DEVICE constexpr int64_t compressor_tile_rows(const CompressorMetadataParams& p) {
    return min_of<int64_t>((kUbBudgetBytes - kRequestChunkBytes) / compressor_row_bytes(p), kMaxCopyBlocks) / 8 * 8;
}

// One block for every 16 KB of output, as far as there are cores.
DSV4_HOST_DEVICE constexpr int64_t compressor_blocks(const CompressorMetadataParams& p, int64_t cores) {
    return blocks_for(p.num_rows * (2 * p.rope_dim * element_bytes(p.table_type) + 4), 16 * 1024, cores);
}

}  // namespace dsv4
