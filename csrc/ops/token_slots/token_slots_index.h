// Slots of a step with an entry for each token, in tables of pages that may be shortened: parameters, launch plan and
// index arithmetic, shared by the CPU loops and the device kernel. Pages here are without a reserved page 0.
#pragma once

#include "common/integer.h"
#include "common/launch_plan.h"

// One table, and the slots that it gives.
struct TokenSlotsTable {
    int64_t columns;          // W
    int64_t row_elems;        // stride between two rows
    int32_t page_shift;       // log2 of a page's slots
    int32_t ratio_shift;      // log2 of a unit's tokens
    int32_t is_int64;         // entries; int32 otherwise
    int32_t has_first_pages;  // 0: column 0 is page 0 in every row
    int32_t first_pages_is_int64;
    int32_t lowest_page;  // entries below it are no pages
};

struct TokenSlotsParams {
    int64_t num_tokens;  // entries of each output
    int64_t num_reqs;    // requests that are read
    int32_t num_tables;
    int32_t cu_seqlens_is_int64;  // int32 otherwise; likewise the next
    int32_t seq_lens_is_int64;
    int32_t tile_tokens;  // what a device works on at a time, of one table
    TokenSlotsTable tables[8];
};

// Where everything lies in global memory; 0 for what is not given.
struct TokenSlotsAddresses {
    uint64_t cu_seqlens;
    uint64_t seq_lens;
    uint64_t tables[8];
    uint64_t first_pages[8];
    uint64_t slots[8];
};

namespace dsv4 {

constexpr int64_t kMaxTokenSlotTables = 8;
static_assert(sizeof(TokenSlotsParams::tables) == kMaxTokenSlotTables * sizeof(TokenSlotsTable));
static_assert(sizeof(TokenSlotsAddresses::slots) == kMaxTokenSlotTables * sizeof(uint64_t));

constexpr int64_t kTokenSlotDummy = -1;
constexpr int64_t kMostSlot = 2147483647;

// A request that cannot be read, or (the last) a page of one. The host raises; a device gives its tokens no slots.
constexpr int32_t kTokensValid = 0;
constexpr int32_t kBadOffsets = 1;
constexpr int32_t kBeyondOutputs = 2;
constexpr int32_t kLengthTooShort = 3;
constexpr int32_t kLengthTooLong = 4;
constexpr int32_t kPageTooLarge = 5;

// begin, end: tokens of the request in the token tensor; seq_len: with them. Without tokens or length it is padding.
DSV4_HOST_DEVICE constexpr int32_t token_slots_fault(int64_t begin, int64_t end, int64_t seq_len, int64_t num_tokens) {
    if (begin < 0 || end < begin) {
        return kBadOffsets;
    }
    if (end > num_tokens) {
        return kBeyondOutputs;
    }
    if (begin == end || seq_len == 0) {
        return kTokensValid;
    }
    if (seq_len < end - begin) {
        return kLengthTooShort;
    }
    return seq_len > kMostSlot ? kLengthTooLong : kTokensValid;
}

// Consecutive units [first, end) of a request that tokens of an interval complete, and the token that completes
// `first`, as an index in the token tensor.
struct CompletedUnits {
    int64_t first;
    int64_t end;
    int64_t token;
};

// Of the tokens [from, to) of a valid request whose tokens end at `end`, with a final length of seq_len.
DSV4_HOST_DEVICE constexpr CompletedUnits completed_units(int64_t from, int64_t to, int64_t end, int64_t seq_len,
                                                          int32_t ratio_shift) {
    const int64_t start = seq_len - (end - from);  // position of `from`
    const int64_t first = start >> ratio_shift;
    return CompletedUnits{first, (start + (to - from)) >> ratio_shift,
                          from + (((first + 1) << ratio_shift) - 1 - start)};
}

// The token that completes a unit of those.
DSV4_HOST_DEVICE constexpr int64_t token_of(int64_t unit, const CompletedUnits& units, const TokenSlotsTable& table) {
    return units.token + ((unit - units.first) << table.ratio_shift);
}

// [begin, end).
struct Interval {
    int64_t begin;
    int64_t end;
};

// Columns of a row that hold pages of the units [first, end), where column 0 holds page `first_page`.
DSV4_HOST_DEVICE constexpr Interval columns_of(int64_t first, int64_t end, int64_t first_page,
                                               const TokenSlotsTable& table) {
    const int64_t page = first >> table.page_shift;
    const int64_t page_end = ((end - 1) >> table.page_shift) + 1;
    // Compared before they are subtracted: nothing bounds first_page.
    if (first == end || first_page >= page_end || first_page <= page - table.columns) {
        return Interval{0, 0};
    }
    return Interval{max_of<int64_t>(0, page - first_page), min_of(table.columns, page_end - first_page)};
}

// The units of [first, end) whose page stands in column `column`.
DSV4_HOST_DEVICE constexpr Interval units_in_column(int64_t first, int64_t end, int64_t column, int64_t first_page,
                                                    const TokenSlotsTable& table) {
    const int64_t page = first_page + column;
    return Interval{max_of(first, page << table.page_shift), min_of(end, (page + 1) << table.page_shift)};
}

// Whether every slot of a page fits int32.
DSV4_HOST_DEVICE constexpr bool page_fits(int64_t page, const TokenSlotsTable& table) {
    return page < (kMostSlot + 1) >> table.page_shift;
}

DSV4_HOST_DEVICE constexpr int64_t unit_slot(int64_t page, int64_t unit, const TokenSlotsTable& table) {
    return (page << table.page_shift) + (unit & ((int64_t{1} << table.page_shift) - 1));
}

DSV4_HOST_DEVICE constexpr int64_t token_slots_entry_elems(int64_t request, int64_t column,
                                                           const TokenSlotsTable& table) {
    return request * table.row_elems + column;
}

// Bounds of a tile. Each request of a tile has its table entries in UB from a 32-byte boundary on; a request of n
// tokens has at most n of them.
constexpr int64_t kLeastTokenTile = 128;
constexpr int64_t kMostTokenTile = 1024;
constexpr int64_t kTokenTileEntryBytes = kMostTokenTile * kUbBlockBytes;
constexpr int64_t kTokenSlotsChunk = 1024;  // requests that are read at a time

DSV4_HOST_DEVICE constexpr int64_t token_tiles(const TokenSlotsParams& p) {
    return ceil_div<int64_t>(p.num_tokens, p.tile_tokens);
}

// Tokens of a tile, so that all cores have one.
DSV4_HOST_DEVICE constexpr int32_t tile_tokens(const TokenSlotsParams& p, int64_t cores) {
    const int64_t share = ceil_div<int64_t>(p.num_tokens, max_of<int64_t>(1, cores / p.num_tables));
    return static_cast<int32_t>(
        min_of(kMostTokenTile, max_of(kLeastTokenTile, round_up<int64_t>(share, kLeastTokenTile))));
}

constexpr int64_t kTokenTileNs = 2500;  // a tile, without its tokens
constexpr int64_t kTokenNs = 6;

DSV4_HOST_DEVICE constexpr int64_t token_slots_blocks(const TokenSlotsParams& p, int64_t cores) {
    const int64_t tiles = p.num_tables * token_tiles(p);
    return min_of(max_of<int64_t>(1, tiles),
                  blocks_for_work(tiles * kTokenTileNs + p.num_tables * p.num_tokens * kTokenNs, cores));
}

}  // namespace dsv4
