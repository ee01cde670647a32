// Compressed groups of a step that another engine's block table addresses: parameters, launch plan and index
// arithmetic, shared by the CPU loops and the device kernel. Blocks here are pages without a reserved block 0.
#pragma once

#include "common/compress.h"
#include "common/element_type.h"
#include "common/step_launch.h"

struct CompressorMetadataParams {
    int64_t num_rows;             // rows of the outputs
    int64_t num_reqs;             // requests that are read
    int64_t max_pos;              // rows of the RoPE tables; INT64_MAX without any
    int64_t block_rows;           // rows of kv_block_table
    int64_t block_columns;        // W: columns of kv_block_table
    int64_t block_row_elems;      // stride between two rows of kv_block_table
    int64_t block_size;           // groups (slots) of a block
    int64_t ratio;                // raw tokens of a group
    int32_t ratio_shift;          // log2 of ratio, or -1 when it is no power of two
    int32_t block_shift;          // log2 of block_size, or -1 likewise
    int32_t rope_dim;             // D; 0 when no RoPE rows are asked for
    int32_t pairs;                // slot_mapping is (block, offset), else flat
    int32_t has_requests;         // 0: request i is row i of kv_block_table
    int32_t request_is_int64;     // req_pool_indices is int32 otherwise; likewise the next three
    int32_t cu_seqlens_is_int64;
    int32_t start_pos_is_int64;
    int32_t block_is_int64;       // entries of kv_block_table
    int32_t table_type;           // element type of the RoPE tables, see element_type.h
    int32_t wanted;               // bit f: output f is asked for
    int32_t reserved;             // keeps the struct free of padding
};

// Where everything lies in global memory; 0 for what is not given or not asked for.
struct CompressorMetadataAddresses {
    uint64_t rope_cos;
    uint64_t rope_sin;
    uint64_t cu_seqlens;
    uint64_t start_pos;
    uint64_t requests;
    uint64_t block_table;
    uint64_t fields[4];
};

namespace dsv4 {

// Outputs, each optional, of as many rows.
constexpr int32_t kCompressorCos = 0;
constexpr int32_t kCompressorSin = 1;
constexpr int32_t kCompressorSlots = 2;
constexpr int32_t kCompressorPositions = 3;
constexpr int32_t kNumCompressorFields = 4;
static_assert(sizeof(CompressorMetadataAddresses::fields) == kNumCompressorFields * sizeof(uint64_t));

DSV4_HOST_DEVICE constexpr bool wants(const CompressorMetadataParams& p, int32_t field) {
    return (p.wanted >> field & 1) != 0;
}

constexpr int64_t kSlotMappingFlat = 1;
constexpr int64_t kSlotMappingPairs = 2;

constexpr int64_t kInt32Max = 2147483647;

// A request that cannot be read. The host raises; a device lets it bring no group.
constexpr int32_t kRequestValid = 0;
constexpr int32_t kDecreasingCuSeqlens = 1;
constexpr int32_t kTooManyTokens = 2;
constexpr int32_t kStartTooLarge = 3;
// What else a device reports: groups past the last row, a block whose slots do not fit int32, and a request without a row in
// the block table, which brings no group.
constexpr int32_t kTooManyGroups = 4;
constexpr int32_t kSlotTooLarge = 5;
constexpr int32_t kUnknownTableRow = 6;

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

// Groups that are complete after `length` tokens; the device has no fast division.
DSV4_HOST_DEVICE constexpr int64_t complete_groups(int64_t length, const CompressorMetadataParams& p) {
    return p.ratio_shift >= 0 ? length >> p.ratio_shift : groups_in(length, p.ratio);
}

// num_new >= 0. A negative start_pos brings no group.
DSV4_HOST_DEVICE constexpr CompletedGroups completed_groups(int64_t start_pos, int64_t num_new,
                                                            const CompressorMetadataParams& p) {
    if (start_pos < 0) {
        return CompletedGroups{0, 0};
    }
    const int64_t first = complete_groups(start_pos, p);
    return CompletedGroups{first, complete_groups(start_pos + num_new, p) - first};
}

// Whether a request that brings groups has a row in the block table.
DSV4_HOST_DEVICE constexpr bool known_table_row(int64_t table_row, const CompressorMetadataParams& p) {
    return table_row >= 0 && table_row < p.block_rows;
}

DSV4_HOST_DEVICE constexpr int64_t block_column(int64_t group, const CompressorMetadataParams& p) {
    return p.block_shift >= 0 ? group >> p.block_shift : group / p.block_size;
}

DSV4_HOST_DEVICE constexpr int64_t block_offset(int64_t group, const CompressorMetadataParams& p) {
    return group - block_column(group, p) * p.block_size;
}

DSV4_HOST_DEVICE constexpr int64_t block_entry_offset_elems(int64_t table_row, int64_t column,
                                                            const CompressorMetadataParams& p) {
    return table_row * p.block_row_elems + column;
}

// A group past either table gets a dummy row.
DSV4_HOST_DEVICE constexpr bool group_in_tables(int64_t group, const CompressorMetadataParams& p) {
    return block_column(group, p) < p.block_columns && group_position(group, p.ratio) < p.max_pos;
}

// Groups whose first position lies in the RoPE tables; any where there are none.
DSV4_HOST_DEVICE constexpr int64_t groups_in_rope(const CompressorMetadataParams& p) {
    return p.max_pos / p.ratio + (p.max_pos % p.ratio != 0 ? 1 : 0);
}

DSV4_HOST_DEVICE constexpr int64_t flat_slot(int64_t block, int64_t offset, const CompressorMetadataParams& p) {
    return block * p.block_size + offset;
}

// What a dummy row says. Both forms mean slot -1: the pair is the one that flat_slot maps to it.
constexpr int64_t kDummyBlock = -1;

DSV4_HOST_DEVICE constexpr int64_t dummy_offset(const CompressorMetadataParams& p) { return p.block_size - 1; }

// The position that a dummy row says: no rotation.
constexpr int64_t kDummyPosition = 0;

// Whether every slot of a block fits the mapping, where one is asked for; in pairs the block does.
DSV4_HOST_DEVICE constexpr bool block_fits(int64_t block, const CompressorMetadataParams& p) {
    return !wants(p, kCompressorSlots) ||
           (block <= kInt32Max && (p.pairs != 0 || flat_slot(block, p.block_size - 1, p) <= kInt32Max));
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

// Requests that a kernel reads and V scans at a time. In UB, in int32: three int64 inputs, of which the offsets have an entry
// more; what is known of each request, its number of earlier groups, first group and table row; 0, 1, 2, ..; the scan.
constexpr int64_t kRequestChunk = 512;
constexpr int64_t kRequestInputElems = 3 * kRequestChunk * 2 + kLaneElems;
constexpr int64_t kRequestArrays = 3;
constexpr int64_t kRequestArrayElems = kRequestChunk + kLaneElems;
constexpr int64_t kRequestScanAreas = 3;
constexpr int64_t kRequestChunkBytes =
    (kRequestInputElems + (kRequestArrays + 1) * kRequestArrayElems + lane_scan_elems(kRequestChunk, kRequestScanAreas)) * 4;
static_assert(kRequestChunk * (kMostScannedTokens + 1) <= int64_t{1} << 30, "groups of a chunk fit int32");

// Elements from one row of a tile to the next.
DSV4_HOST_DEVICE constexpr int64_t compressor_pitch_elems(const CompressorMetadataParams& p) {
    return round_up<int64_t>(p.rope_dim, kUbBlockBytes / element_bytes(p.table_type));
}

// UB of an output row: cos and sin, a slot, a position, and block table entries, which may be int64. A run of n groups has at
// most n columns, and its first one begins a 32-byte block.
constexpr int64_t kColumnsPerRow = 8;

DSV4_HOST_DEVICE constexpr int64_t compressor_row_bytes(const CompressorMetadataParams& p) {
    return 2 * compressor_pitch_elems(p) * element_bytes(p.table_type) + 2 * 4 + 8 + kColumnsPerRow * 8;
}

// Output rows of a tile, a multiple of 8 so that every buffer of it starts aligned; 0 when a row is too long for UB.
DSV4_HOST_DEVICE constexpr int64_t compressor_tile_rows(const CompressorMetadataParams& p) {
    return min_of<int64_t>((kUbBudgetBytes - kRequestChunkBytes) / compressor_row_bytes(p), kMaxCopyBlocks) / 8 * 8;
}

constexpr int64_t kCompressorRowNs = 180;  // of an output row

// Output rows at which shares are cut, so that no two cores write into one 32-byte piece of an output.
constexpr int64_t kCompressorCutRows = kUbBlockBytes / 4;

// A share has some cuts' worth of rows that cost more than dummies; fewer blocks with as many are as soon done. Of a verify
// step about half of the rows belong to groups, which take twice the time of the others.
DSV4_HOST_DEVICE constexpr int64_t compressor_blocks(const CompressorMetadataParams& p, int64_t cores) {
    const int64_t row_bytes = 2 * (2 * p.rope_dim * element_bytes(p.table_type) + 12);
    const int64_t blocks = blocks_for_work(p.num_rows * (kCompressorRowNs + row_bytes / kBytesPerNs), cores);
    return even_blocks(ceil_div<int64_t>(3 * p.num_rows, 4 * kCompressorCutRows), blocks);
}

}  // namespace dsv4
