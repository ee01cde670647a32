// Compressed groups of a step that another engine's block table addresses: parameters and index arithmetic, shared by
// the CPU loops and the device kernel. Blocks here are pages without a reserved block 0.
#pragma once

#include "common/compress.h"

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
    int32_t reserved;             // keeps the struct free of padding
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

DSV4_HOST_DEVICE constexpr int64_t slot_mapping_offset_elems(int64_t row, const CompressorMetadataParams& p) {
    return p.pairs ? 2 * row : row;
}

}  // namespace dsv4
