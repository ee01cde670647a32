// One step: parameters and index arithmetic, shared by the CPU loops and the device kernel (docs/spec.md, a step).
#pragma once

#include "common/element_type.h"
#include "common/pool_address.h"
#include "common/step_fields.h"
#include "common/step_launch.h"

// Arrays of 6 are in table order, of 2 for ratios 4 and 128; lengths are numbers because launch stubs repeat the
// structs outside their namespace. Every block reads them from cold memory, so that members are as narrow as they can
// be.
struct StepParams {
    PoolAddress pools[6];
    StepRowsParams rows;
    int32_t window;              // tokens that the sliding window keeps
    int32_t page_row_elems[6];   // elements between two rows of a page table
    int32_t capacity_groups[2];  // entries of the dense outputs
    int32_t max_pos;             // rows of the RoPE tables of groups
    int32_t rope_dim;            // D: elements of a row
    int32_t token_max_pos[2];    // the same of tokens, of both bases
    int32_t token_rope_dim[2];
    int32_t page_columns[6];     // of a page table; 0: not asked for
    int32_t state_columns[2];    // of c4_state_locs and c128_state_locs
    int32_t window_rows;         // rows of window_locs: requests * window_block
    int32_t window_columns;      // K
    int32_t window_block;        // rows of window_locs that belong to one request
    int32_t dummy_slots[6];      // what stands for no slot, by pool
    int32_t dummy_pages[6];      // what stands for no page
    int32_t wanted;              // bit f: field f of step_fields.h is asked for
    int32_t scanned_width;       // on a device: the most tokens of a row that V scans; -1: it scans none
    uint16_t work_before[18];    // on a device: of the launch's work, what comes before each stage, and all of it
    uint16_t stage_setup;        // on a device: of the work of a stage, what it takes to begin with it
    int8_t token_rope_type[2];   // element type of their rows, see element_type.h
    int8_t holds_any_groups;     // on a device: no rows complete more groups than the outputs hold
    int8_t other_page_tables;    // on a device: bit pool: its page table is no copy of rows, or one of long rows
    uint8_t wide_slots;          // bit pool: its slots are int64
    uint8_t pair_slots;          // bit pool: its slots are pairs (page, offset) of int32
    uint8_t reserved[4];         // keeps the struct free of padding
};

// Where everything lies in global memory; 0 for what is not given or not asked for.
struct StepAddresses {
    uint64_t tables[6];
    uint64_t requests;
    uint64_t lengths;
    uint64_t operands;
    uint64_t rope_cos;
    uint64_t rope_sin;
    uint64_t token_rope[4];
    uint64_t fields[31];
};

namespace dsv4 {

static_assert(sizeof(StepAddresses::fields) == kNumStepFields * sizeof(uint64_t));
static_assert(sizeof(StepParams) == 384 && sizeof(PoolAddress) == 24 && sizeof(StepRowsParams) == 32);

DSV4_HOST_DEVICE constexpr bool wants(const StepParams& p, int32_t field) { return (p.wanted >> field & 1) != 0; }

DSV4_HOST_DEVICE constexpr bool are_wide(const StepParams& p, int32_t pool) { return (p.wide_slots >> pool & 1) != 0; }

// A slot as a pair: its page, and its offset in the page. What stands for no slot is split alike: -1 is (-1, P - 1).
DSV4_HOST_DEVICE constexpr bool are_pairs(const StepParams& p, int32_t pool) { return (p.pair_slots >> pool & 1) != 0; }

DSV4_HOST_DEVICE constexpr int64_t ratio_of(int32_t which) { return which == 0 ? kRatioC4 : kRatioC128; }

// Entries of a page table's row that name pages; none for padding.
struct PageSpan {
    int64_t begin;
    int64_t end;
};

// What the spans of a pool follow from, so that a kernel asks for the pool once and not for each row.
struct PageSpanRule {
    int32_t align_shift;  // a row needs the units from `lead` tokens before its start on, at a multiple of
    int32_t lead;         // 1 << align_shift tokens
    int32_t unit_shift;   // log2 of a unit's tokens
    int32_t page_shift;
};

DSV4_HOST_DEVICE constexpr PageSpanRule page_span_rule(int32_t pool, int32_t window, int32_t page_shift) {
    return pool == kSwa         ? PageSpanRule{0, window - 1, 0, page_shift}
           : pool == kC4State   ? PageSpanRule{kShiftC4, kRatioC4 * overlap_of(kRatioC4), 0, page_shift}
           : pool == kC128State ? PageSpanRule{kShiftC128, kRatioC128 * overlap_of(kRatioC128), 0, page_shift}
                                : PageSpanRule{0, INT32_MAX, unit_shift(pool), page_shift};
}

// Of a row's tokens [start, end).
DSV4_HOST_DEVICE constexpr PageSpan page_span(const PageSpanRule& rule, int64_t start, int64_t end) {
    const int64_t needed = ((start >> rule.align_shift) << rule.align_shift) - rule.lead;
    return PageSpan{page_of(max_of<int64_t>(0, needed), rule.page_shift),
                    pages_for(end >> rule.unit_shift, rule.page_shift)};
}

// The windows are those of pools.h.
DSV4_HOST_DEVICE constexpr bool keeps_windows(int64_t start, int32_t window) {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const int64_t begin = is_windowed_pool(pool) ? window_first_needed(start, pool, window) : 0;
        if (page_span(page_span_rule(pool, window, 0), start, start).begin != begin) {
            return false;
        }
    }
    return true;
}
static_assert(keeps_windows(0, 1) && keeps_windows(3, 2) && keeps_windows(4, 1) && keeps_windows(131, 3) &&
              keeps_windows(1023, 129));

DSV4_HOST_DEVICE constexpr PageSpan page_span(int32_t pool, const StepRow& row, const StepParams& p) {
    return page_span(page_span_rule(pool, p.window, p.pools[pool].page_shift), row.start, final_length(row));
}

// First unit of a pool that lies in page `page`.
DSV4_HOST_DEVICE constexpr int64_t first_unit_of_page(int64_t page, int32_t page_shift) { return page << page_shift; }

// Attention takes a row whose first entry is -1 for a broken one, so that a padding row of the swa page table starts
// with the reserved page.
constexpr int32_t kPaddingPage = 0;

// Longest sequence whose pages fit into every page table asked for; longer ones are bad rows.
DSV4_HOST_DEVICE constexpr int64_t covered_length(const StepParams& p, int64_t limit) {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (p.page_columns[pool] != 0) {
            const int64_t units = first_unit_of_page(p.page_columns[pool], p.pools[pool].page_shift);
            limit = min_of(limit, units * tokens_per_unit(pool) + tokens_per_unit(pool) - 1);
        }
    }
    return limit;
}

// Whether the row's window and new tokens need more pages than a ring of columns holds.
DSV4_HOST_DEVICE constexpr bool beyond_ring(const StepRow& row, const StepParams& p) {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (p.pools[pool].kind == kPages && is_windowed_pool(pool)) {
            const PageSpan span = page_span(pool, row, p);
            if (span.end - span.begin > p.pools[pool].columns) {
                return true;
            }
        }
    }
    return false;
}

// Explicit state tables: column 0 is this many tokens before the step, column lead + i its i-th token.
DSV4_HOST_DEVICE constexpr int64_t state_lead(int64_t ratio) { return (overlap_of(ratio) + 1) * ratio; }

// Tokens [begin, end) of a row.
struct TokenSpan {
    int64_t begin;
    int64_t end;
};

// First token whose page a ring of columns still holds once the row's last one is in it; 0 for other tables.
DSV4_HOST_DEVICE constexpr int64_t first_in_ring(int32_t pool, const StepRow& row, const StepParams& p) {
    const PoolAddress& own = p.pools[pool];
    const PoolAddress& a = own.kind == kPageRing ? p.pools[own.base] : own;
    const PoolAddress& table = a.kind == kMapped ? p.pools[a.base] : a;
    const int64_t pages = pages_for(final_length(row), table.page_shift);
    return table.kind == kPages ? max_of<int64_t>(0, pages - table.columns) << table.page_shift : 0;
}

// Tokens that a row of an explicit state table names; all other columns are dummies.
DSV4_HOST_DEVICE constexpr TokenSpan state_tokens(const StepRow& row, int32_t which, const StepParams& p) {
    return is_padding(row)
               ? TokenSpan{0, 0}
               : TokenSpan{max_of(first_in_ring(kC4State + which, row, p), row.start - state_lead(ratio_of(which))),
                           final_length(row)};
}

DSV4_HOST_DEVICE constexpr int64_t state_column(const StepRow& row, int64_t token, int64_t ratio) {
    return token - (row.start - state_lead(ratio));
}

// Tokens that every token of a row's block attends to: the last `window` committed ones and the whole block.
DSV4_HOST_DEVICE constexpr TokenSpan window_tokens(const StepRow& row, const StepParams& p) {
    return is_padding(row) ? TokenSpan{0, 0}
                           : TokenSpan{max_of(first_in_ring(kSwa, row, p), row.start - p.window), final_length(row)};
}

// window_locs ends each row with this; a row without tokens starts with kIdleWindow.
constexpr int32_t kWindowEnd = -1;
constexpr int32_t kIdleWindow = 0;

// Whether a row brings more tokens than a row of state or window slots has room for.
DSV4_HOST_DEVICE constexpr bool beyond_columns(const StepRow& row, const StepParams& p) {
    for (int32_t which = 0; which < 2; ++which) {
        if (p.state_columns[which] != 0 && state_lead(ratio_of(which)) + row.num_new > p.state_columns[which]) {
            return true;
        }
    }
    const TokenSpan window = window_tokens(row, p);
    return p.window_columns != 0 && window.end - window.begin > p.window_columns;
}

// Tokens that a row may bring so that, wherever it starts, it is neither beyond_ring nor beyond_columns; possibly less
// than 0.
DSV4_HOST_DEVICE constexpr int64_t unchecked_width(const StepParams& p) {
    int64_t width = INT64_MAX;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const PoolAddress& a = p.pools[pool];
        if (a.kind == kPages && is_windowed_pool(pool)) {
            // A page that is needed from its last unit on, and the one that the last token starts.
            const int64_t page = int64_t{1} << a.page_shift;
            const int64_t lead = pool == kSwa ? p.window : state_lead(pool == kC4State ? kRatioC4 : kRatioC128);
            width = min_of(width, a.columns * page - 2 * (page - 1) - lead);
        }
    }
    for (int32_t which = 0; which < 2; ++which) {
        if (p.state_columns[which] != 0) {
            width = min_of<int64_t>(width, p.state_columns[which] - state_lead(ratio_of(which)));
        }
    }
    return p.window_columns != 0 ? min_of<int64_t>(width, p.window_columns - p.window) : width;
}

// What the rows before one have taken of the outputs, and what the outputs hold.
struct StepTotals {
    int64_t tokens;
    int64_t groups[2];  // of ratios 4 and 128
};

struct AdmittedRow {
    StepRow row;
    int32_t fault;
};

// A bad row is padding and keeps its tokens where that is possible, so that later rows stay in place.
DSV4_HOST_DEVICE constexpr int64_t tokens_of_bad_row(const StepRowsParams& p, int64_t length, int64_t operand) {
    if (form_has_operand(p.form) && (operand < 0 || (p.form == kPrefill && (length < 0 || operand > length)))) {
        return 0;
    }
    return row_step(p.form, length, operand, p.width).token_width;
}

DSV4_HOST_DEVICE constexpr AdmittedRow admit_row(const StepParams& p, const StepTotals& before, int64_t request,
                                                 int64_t length, int64_t operand) {
    int32_t fault = row_fault(p.rows, request, length, operand);
    StepRow row = fault == kRowValid ? row_step(p.rows.form, length, operand, p.rows.width)
                                     : StepRow{0, 0, tokens_of_bad_row(p.rows, length, operand)};
    if (row.token_width > p.rows.num_tokens - before.tokens) {
        return AdmittedRow{StepRow{0, 0, 0}, fault == kRowValid ? kBeyondTokens : fault};
    }
    if (num_groups(row, kRatioC4) > p.capacity_groups[0] - before.groups[0] ||
        num_groups(row, kRatioC128) > p.capacity_groups[1] - before.groups[1]) {
        fault = kBeyondGroups;
    } else if (beyond_ring(row, p)) {
        fault = kBeyondRing;
    } else if (beyond_columns(row, p)) {
        fault = kBeyondColumns;
    }
    return AdmittedRow{fault == kRowValid ? row : StepRow{0, 0, row.token_width}, fault};
}

// Which of a row's values a fault is about.
DSV4_HOST_DEVICE constexpr int64_t faulty_value(int32_t fault, int64_t request, int64_t length, int64_t operand) {
    return fault == kUnknownRequest ? request : fault == kNegativeOperand ? operand : length;
}

}  // namespace dsv4
