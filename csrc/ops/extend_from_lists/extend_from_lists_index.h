// Extending requests with pages from lists: parameters and index arithmetic, shared by the CPU loops and the device
// kernel.
#pragma once

#include "common/compress.h"
#include "common/launch_plan.h"

struct ExtendFromListsParams {
    int64_t num_rows;      // B: rows, padding rows included
    int64_t num_tokens;    // entries of full_loc and swa_loc
    int64_t num_c4;        // entries of c4_loc
    int64_t num_c128;      // entries of c128_loc
    int64_t num_replaced;  // entries of c128_replaced
    int64_t full_pages;    // entries of the lists
    int64_t swa_pages;
    int64_t c128_pages;
    int64_t num_slots;         // entries of the mapping, slots of page 0 included
    int64_t num_owners;        // entries of c128_owners, page 0 included
    int64_t max_requests;      // rows of c128_table
    int64_t table_row_elems;   // stride between two of them
    int64_t swa_tail;          // tokens of a row that get swa slots; INT64_MAX: all
    int32_t columns;           // entries in a row of c128_table
    int32_t page_shift;        // log2 of the slots in a page of full and swa
    int32_t c128_page_shift;   // the same of c128
    int32_t request_is_int64;  // req_pool_indices is int32 otherwise; likewise the next three
    int32_t prefix_is_int64;   // kOneToken: not given, and each row brings one token
    int32_t seq_is_int64;
    int32_t last_is_int64;
    int32_t reserved;  // keeps the struct free of padding
};

namespace dsv4 {

// What is wrong with a row, or with a page. The host raises; a device makes the row padding, or leaves the page out,
// and records the code.
constexpr int32_t kExtendValid = 0;
constexpr int32_t kExtendNegativePrefix = 1;
constexpr int32_t kExtendEndBeforePrefix = 2;
constexpr int32_t kExtendUnknownRequest = 3;
constexpr int32_t kExtendBeyondTable = 4;
constexpr int32_t kExtendLastLoc = 5;
constexpr int32_t kExtendBeyondOutputs = 6;
constexpr int32_t kExtendBeyondLists = 7;
constexpr int32_t kExtendTail = 8;
constexpr int32_t kExtendPage = 9;

constexpr int32_t kOneToken = -1;

// Lengths in raw tokens.
struct ExtendRow {
    int64_t request;
    int64_t prefix;
    int64_t seq;
    int64_t last_loc;  // full slot of token prefix - 1, where the prefix does not end a page
};

// What rows need: entries of the outputs and pages of the lists. Also a running total: where a row's own begin.
struct ExtendCounts {
    int64_t tokens;
    int64_t c4;
    int64_t c128;
    int64_t full_pages;
    int64_t swa_pages;
    int64_t c128_pages;
};

DSV4_HOST_DEVICE constexpr bool is_extend_padding(const ExtendRow& row) { return row.prefix == row.seq; }

// First token that gets a swa slot.
DSV4_HOST_DEVICE constexpr int64_t swa_begin(const ExtendRow& row, const ExtendFromListsParams& p) {
    return max_of(row.prefix, row.seq - min_of(row.seq, p.swa_tail));
}

// Pages that units [begin, end) take: the one that `begin` lies in was taken before, unless it starts there.
DSV4_HOST_DEVICE constexpr int64_t pages_taken(int64_t begin, int64_t end, int32_t page_shift) {
    return pages_for(end, page_shift) - pages_for(begin, page_shift);
}

DSV4_HOST_DEVICE constexpr ExtendCounts extend_counts(const ExtendRow& row, const ExtendFromListsParams& p) {
    const int64_t c128_begin = groups_in(row.prefix, kRatioC128);
    const int64_t c128_end = groups_in(row.seq, kRatioC128);
    return ExtendCounts{row.seq - row.prefix,
                        groups_in(row.seq, kRatioC4) - groups_in(row.prefix, kRatioC4),
                        c128_end - c128_begin,
                        pages_taken(row.prefix, row.seq, p.page_shift),
                        pages_taken(swa_begin(row, p), row.seq, p.page_shift),
                        pages_taken(c128_begin, c128_end, p.c128_page_shift)};
}

DSV4_HOST_DEVICE constexpr void add_counts(ExtendCounts& total, const ExtendCounts& counts) {
    total.tokens += counts.tokens;
    total.c4 += counts.c4;
    total.c128 += counts.c128;
    total.full_pages += counts.full_pages;
    total.swa_pages += counts.swa_pages;
    total.c128_pages += counts.c128_pages;
}

DSV4_HOST_DEVICE constexpr bool starts_inside_page(int64_t unit, int32_t page_shift) {
    return offset_in_page(unit, page_shift) != 0;
}

// Whether a slot is that of the token before the prefix, which lies in a page that has been started.
DSV4_HOST_DEVICE constexpr bool is_last_slot(int64_t slot, const ExtendRow& row, const ExtendFromListsParams& p) {
    return page_of(slot, p.page_shift) > 0 &&
           offset_in_page(slot, p.page_shift) == offset_in_page(row.prefix - 1, p.page_shift);
}

// Whether the row's first swa slot follows that of token prefix - 1.
DSV4_HOST_DEVICE constexpr bool joins_swa_page(const ExtendRow& row, const ExtendFromListsParams& p) {
    return starts_inside_page(row.prefix, p.page_shift) && swa_begin(row, p) == row.prefix;
}

DSV4_HOST_DEVICE constexpr int32_t extend_row_fault(const ExtendRow& row, const ExtendFromListsParams& p) {
    if (is_extend_padding(row)) {
        return kExtendValid;
    }
    if (row.prefix < 0) {
        return kExtendNegativePrefix;
    }
    if (row.seq < row.prefix) {
        return kExtendEndBeforePrefix;
    }
    if (row.request < 0 || row.request >= p.max_requests) {
        return kExtendUnknownRequest;
    }
    if (pages_for(groups_in(row.seq, kRatioC128), p.c128_page_shift) > p.columns) {
        return kExtendBeyondTable;
    }
    if (starts_inside_page(row.prefix, p.page_shift) &&
        (row.last_loc >= p.num_slots || !is_last_slot(row.last_loc, row, p))) {
        return kExtendLastLoc;
    }
    const int64_t begin = swa_begin(row, p);
    const bool own_start = begin != row.prefix && begin != row.seq;
    return own_start && starts_inside_page(begin, p.page_shift) ? kExtendTail : kExtendValid;
}

// Whether a row fits behind those before it.
DSV4_HOST_DEVICE constexpr int32_t extend_room_fault(const ExtendCounts& before, const ExtendCounts& counts,
                                                     const ExtendFromListsParams& p) {
    if (counts.tokens > p.num_tokens - before.tokens || counts.c4 > p.num_c4 - before.c4 ||
        counts.c128 > p.num_c128 - before.c128 || counts.c128_pages > p.num_replaced - before.c128_pages) {
        return kExtendBeyondOutputs;
    }
    if (counts.full_pages > p.full_pages - before.full_pages || counts.swa_pages > p.swa_pages - before.swa_pages ||
        counts.c128_pages > p.c128_pages - before.c128_pages) {
        return kExtendBeyondLists;
    }
    return kExtendValid;
}

// Whether the mapping has the whole page of full, or slots of the page of swa are within int32.
DSV4_HOST_DEVICE constexpr bool is_full_page(int64_t page, const ExtendFromListsParams& p) {
    return page > 0 && page < p.num_slots && (page + 1) << p.page_shift <= p.num_slots;
}

DSV4_HOST_DEVICE constexpr bool is_swa_page(int64_t page, const ExtendFromListsParams& p) {
    return page > 0 && page <= (INT32_MAX >> p.page_shift);
}

DSV4_HOST_DEVICE constexpr bool is_c128_page(int64_t page, const ExtendFromListsParams& p) {
    return page > 0 && page < p.num_owners && page <= (INT32_MAX >> p.c128_page_shift);
}

// Whether the page of `unit`, not before `begin`, is one that the interval takes.
DSV4_HOST_DEVICE constexpr bool is_taken(int64_t unit, int64_t begin, int32_t page_shift) {
    return page_of(unit, page_shift) >= pages_for(begin, page_shift);
}

// Place in a list of the page of `unit`, for an interval that takes pages from `before` on.
DSV4_HOST_DEVICE constexpr int64_t list_entry(int64_t unit, int64_t begin, int64_t before, int32_t page_shift) {
    return before + page_of(unit, page_shift) - pages_for(begin, page_shift);
}

// First group of 4 whose last token is `token` or a later one.
DSV4_HOST_DEVICE constexpr int64_t first_group_from(int64_t token) { return groups_in(token, kRatioC4); }

// Slot of a group of 4 whose last token comes `token_offset` entries after full slot `slot`.
DSV4_HOST_DEVICE constexpr int64_t c4_slot_of(int64_t slot, int64_t token_offset) {
    return groups_in(slot + token_offset, kRatioC4);
}

// Tokens from `token` to the last one of the first group that is completed from there on.
DSV4_HOST_DEVICE constexpr int64_t tokens_to_group_end(int64_t token) {
    return first_group_from(token) * kRatioC4 + kRatioC4 - 1 - token;
}

// Entry of c128_table that holds the page of a group of 128.
DSV4_HOST_DEVICE constexpr int64_t c128_entry_elems(int64_t request, int64_t group, const ExtendFromListsParams& p) {
    return request * p.table_row_elems + page_of(group, p.c128_page_shift);
}

// What a device works on at a time: parts of pages, batches of parts that fit into UB together.
constexpr uint32_t kExtendTileUnits = 4096;
constexpr uint32_t kExtendTileParts = 64;
constexpr uint32_t kExtendChunkRows = 256;  // rows whose inputs are read at a time
constexpr int64_t kExtendGrainBytes = 16 * 1024;

DSV4_HOST_DEVICE constexpr int64_t extend_from_lists_blocks(const ExtendFromListsParams& p, int64_t cores) {
    // full_loc, swa_loc and the mapping, and a quarter of an int32 of c4_loc.
    return blocks_for(21 * p.num_tokens, kExtendGrainBytes, cores);
}

}  // namespace dsv4
