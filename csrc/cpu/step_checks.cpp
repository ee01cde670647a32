#include "cpu/step_checks.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

namespace dsv4::cpu {
namespace {

const char* group_output_name(int32_t which, const StepParams& p) {
    const int32_t positions = kFieldGroupPositions + which;
    const int32_t slots = kFieldSlots + kC4 + which;
    const int32_t cos = kFieldC4Cos + 2 * which;
    return kStepFieldNames[wants(p, positions) ? positions : wants(p, slots) ? slots : wants(p, cos) ? cos : cos + 1];
}

void check_groups(const char* op, const ScannedStep& step, const StepParams& p, int32_t which) {
    TORCH_CHECK_VALUE(step.groups[which] <= p.capacity_groups[which], op, ": ", group_output_name(which, p), " has ",
                      p.capacity_groups[which], " entries, expected at least ", step.groups[which], " (groups of ",
                      ratio_of(which), " that the step completes)");
    const int32_t cos = kFieldC4Cos + 2 * which;
    TORCH_CHECK_INDEX(!(wants(p, cos) || wants(p, cos + 1)) || step.positions_end[which] <= p.max_pos, op, ": ",
                      kStepFieldNames[kFieldGroupPositions + which], " reaches ", step.positions_end[which] - 1,
                      ", expected 0 <= position < ", p.max_pos, " (rows of rope_cos)");
}

void check_token_positions(const char* op, const ScannedStep& step, const StepParams& p) {
    for (int32_t i = 0; i < kNumTokenRope; ++i) {
        TORCH_CHECK_INDEX(!wants(p, kFieldMainCos + i) || step.tokens_end <= p.token_max_pos[i / 2], op, ": ",
                          kStepFieldNames[kFieldMainCos + i], " reaches position ", step.tokens_end - 1,
                          ", expected 0 <= position < ", p.token_max_pos[i / 2], " (rows of ", kTokenRopeNames[i], ")");
    }
}

// A windowed pool whose table has fewer columns than the longest request has pages.
bool has_ring(const StepParams& p) {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const PoolAddress& a = p.pools[pool];
        if (a.kind == kPages && units_in_table(a) < units_in(p.rows.max_context_len, pool)) {
            return true;
        }
    }
    return false;
}

void check_rings(const char* op, const ScannedStep& step, const StepParams& p) {
    for (int64_t i = 0; i < static_cast<int64_t>(step.rows.size()); ++i) {
        if (!beyond_ring(step.rows[i], p)) {
            continue;
        }
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            const PageSpan span = page_span(pool, step.rows[i], p);
            const bool ring = p.pools[pool].kind == kPages && is_windowed_pool(pool);
            TORCH_CHECK_VALUE(!ring || span.end - span.begin <= p.pools[pool].columns, op, ": table of pool ",
                              kPoolNames[pool], " has ", p.pools[pool].columns, " columns, expected at least ",
                              span.end - span.begin, " (live pages of row ", i, ": ", span.begin, " to ", span.end - 1,
                              ")");
        }
    }
}

// Room for the tokens of each row in state tables and window slots.
void check_token_columns(const char* op, const ScannedStep& step, const StepParams& p) {
    for (int64_t i = 0; i < static_cast<int64_t>(step.rows.size()); ++i) {
        const ScannedRow& row = step.rows[i];
        for (int32_t which = 0; which < 2; ++which) {
            const int64_t needed = state_lead(ratio_of(which)) + row.num_new;
            TORCH_CHECK_VALUE(p.state_columns[which] == 0 || needed <= p.state_columns[which], op, ": ",
                              kStepFieldNames[kFieldC4StateLocs + which], " has ", p.state_columns[which],
                              " columns, expected at least ", needed, " (", state_lead(ratio_of(which)), " and the ",
                              row.num_new, " new tokens of row ", i, ")");
        }
        const TokenSpan tokens = window_tokens(row, p);
        TORCH_CHECK_VALUE(p.window_columns == 0 || tokens.end - tokens.begin <= p.window_columns, op,
                          ": out.window_locs has ", p.window_columns, " columns, expected at least ",
                          tokens.end - tokens.begin, " (window and new tokens of row ", i, ")");
    }
}

// Whether an output asks for slots of tokens in `pool`.
bool wants_slots(int32_t pool, const StepParams& p) {
    return wants(p, kFieldSlots + pool) || (pool == kSwa && wants(p, kFieldWindowLocs)) ||
           (is_state_pool(pool) && wants(p, kFieldC4StateLocs + pool - kC4State));
}

// First token whose slot in `pool` an output asks for; the row's start, or a token before it.
int64_t first_token_read(int32_t pool, const StepRow& row, const StepParams& p) {
    if (pool == kSwa && wants(p, kFieldWindowLocs)) {
        return min_of(row.start, window_tokens(row, p).begin);
    }
    if (is_state_pool(pool) && wants(p, kFieldC4StateLocs + pool - kC4State)) {
        return min_of(row.start, state_tokens(row, pool - kC4State, p).begin);
    }
    return row.start;
}

// Units begin, begin + stride, .. below end of a row, whose base slots a mapping must have entries for.
void check_mapped_units(const char* op, int64_t i, const ScannedRow& row, const StepParams& p, const PoolSlots& slots,
                        int32_t mapped, int64_t begin, int64_t end, int64_t stride) {
    const int32_t base = p.pools[mapped].base;
    const int64_t entries = p.pools[mapped].row_elems;
    if (entries > 0 && slots.all_below(base, row.request, begin, end, stride, entries)) {
        return;
    }
    for (int64_t unit = begin; unit < end; unit += stride) {
        const int64_t slot = slots.slot(base, row.request, unit);
        TORCH_CHECK_VALUE(slot < entries, op, ": mapping of pool ", kPoolNames[mapped], " has ", entries,
                          " entries, expected one for slot ", slot, " of pool ", kPoolNames[base], " (token ", unit,
                          " of row ", i, ")");
    }
}

// All that is looked up in the mapping of pool `mapped`: its own slots and those of rings in its pages.
void check_mapping(const char* op, const ScannedStep& step, const StepParams& p, const PoolSlots& slots,
                   int32_t mapped) {
    c10::SmallVector<int32_t, kNumPools> read;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const bool found_here = pool == mapped || (p.pools[pool].kind == kPageRing && p.pools[pool].base == mapped);
        if (found_here && wants_slots(pool, p)) {
            read.push_back(pool);
        }
    }
    const bool pages = wants(p, kFieldPageTable + mapped);
    if (read.empty() && !pages) {
        return;
    }
    const int32_t shift = p.pools[mapped].page_shift;
    for (int64_t i = 0; i < static_cast<int64_t>(step.rows.size()); ++i) {
        const ScannedRow& row = step.rows[i];
        int64_t first = final_length(row);
        for (const int32_t pool : read) {
            first = min_of(first, first_token_read(pool, row, p));
        }
        check_mapped_units(op, i, row, p, slots, mapped, first, final_length(row), 1);
        if (pages) {
            const PageSpan span = page_span(mapped, row, p);
            check_mapped_units(op, i, row, p, slots, mapped, first_unit_of_page(span.begin, shift),
                               first_unit_of_page(span.end, shift), int64_t{1} << shift);
        }
    }
}

}  // namespace

void check_scanned_step(const char* op, const ScannedStep& step, const StepParams& p, const PoolSlots& slots) {
    check_groups(op, step, p, 0);
    check_groups(op, step, p, 1);
    check_token_positions(op, step, p);
    if (has_ring(p)) {
        check_rings(op, step, p);
    }
    if (p.state_columns[0] != 0 || p.state_columns[1] != 0 || p.window_columns != 0) {
        check_token_columns(op, step, p);
    }
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (p.pools[pool].kind == kMapped) {
            check_mapping(op, step, p, slots, pool);
        }
    }
}

}  // namespace dsv4::cpu
