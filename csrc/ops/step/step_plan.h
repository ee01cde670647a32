// What the host decides of a step's launch: which kernel, how many blocks, and how they share its stages.
#pragma once

#include "ops/step/step_stages.h"

namespace dsv4 {

// Rows that complete groups of a ratio, as far as the host can know.
DSV4_HOST_DEVICE constexpr int64_t expected_rows(const StepParams& p, int32_t which) {
    const int64_t tokens = form_has_operand(p.rows.form) ? p.rows.num_tokens : int64_t{p.rows.num_rows} * p.rows.width;
    return min_of<int64_t>(p.rows.num_rows, min_of<int64_t>(p.capacity_groups[which], tokens / ratio_of(which)));
}

DSV4_HOST_DEVICE constexpr int64_t num_pools(uint32_t pools) {
    int64_t count = 0;
    for (; pools != 0; pools >>= 1) {
        count += pools & 1;
    }
    return count;
}

// Tables of a stage of RoPE rows that are asked for and have bytes.
DSV4_HOST_DEVICE constexpr int64_t rope_tables(const StepParams& p, int32_t stage) {
    const RopeOutputs outputs = rope_outputs(stage);
    int64_t tables = 0;
    for (int32_t i = 0; i < outputs.count; ++i) {
        tables += wants(p, outputs.field + i) && rope_row(p, stage, i).bytes != 0 ? 1 : 0;
    }
    return tables;
}

// Bytes of an entry in those that are asked for.
DSV4_HOST_DEVICE constexpr int64_t rope_bytes(const StepParams& p, int32_t stage) {
    const RopeOutputs outputs = rope_outputs(stage);
    int64_t bytes = 0;
    for (int32_t i = 0; i < outputs.count; ++i) {
        bytes += wants(p, outputs.field + i) ? rope_row(p, stage, i).bytes : 0;
    }
    return bytes;
}

// A bit for each pool whose page table is asked for and is made in tiles of its own.
DSV4_HOST_DEVICE constexpr int32_t other_page_tables(const StepParams& p) {
    int32_t pools = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        pools |= (p.page_columns[pool] != 0 && !copies_page_rows(p, pool)) << pool;
    }
    return pools;
}

// Whether the outputs for tokens are asked for.
DSV4_HOST_DEVICE constexpr bool wants_tokens(const StepParams& p) {
    return wants(p, kFieldPositions) || slot_pools(p, kStageTokens) != 0 || rope_tables(p, kStageTokenRope) != 0;
}

// Whether UB has room for the RoPE rows of one row's tokens, the row of position 0, and what else a row takes.
DSV4_HOST_DEVICE constexpr bool fit_uniform_tokens(const StepParams& p) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < kNumTokenRope; ++i) {
        bytes += wants(p, kFieldMainCos + i) ? ub_row_bytes(rope_row(p, kStageTokenRope, i).bytes) : 0;
    }
    return (p.rows.width + 1) * bytes <= (kScratchElems - kUniformRowWords) * static_cast<int64_t>(sizeof(int32_t));
}

// Whether slots of a pool, as many as are asked for, come from a table of pages that is no ring.
DSV4_HOST_DEVICE constexpr bool has_plain_pages(const StepParams& p, int32_t pool) {
    const PoolAddress& a = p.pools[pool];
    return a.kind == kPages && a.is_int64 == 0 && units_in_table(a) >= units_in(p.rows.max_context_len, pool);
}

// Whether uniform_step_kernel.cpp makes the step: a decode or verify of a few tokens a row over tables of pages.
DSV4_HOST_DEVICE constexpr bool takes_uniform(const StepParams& p) {
    if (p.rows.num_rows == 0 || form_has_operand(p.rows.form) || p.rows.width < 1 || p.rows.width > kLaneElems ||
        p.pair_slots != 0 || p.state_columns[0] != 0 || p.state_columns[1] != 0 || p.window_rows != 0 ||
        (wants_tokens(p) && (p.rows.num_tokens != int64_t{p.rows.num_rows} * p.rows.width || !fit_uniform_tokens(p)))) {
        return false;
    }
    int32_t token_shift = -1;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        const PoolAddress& a = p.pools[pool];
        if (p.page_columns[pool] != 0 && (a.kind != kPages || a.is_int64 != 0 || p.page_columns[pool] > a.columns)) {
            return false;
        }
        if (!wants(p, kFieldSlots + pool)) {
            continue;
        }
        if (!has_plain_pages(p, pool) || (!is_group_pool(pool) && token_shift >= 0 && token_shift != a.page_shift)) {
            return false;
        }
        token_shift = is_group_pool(pool) ? token_shift : a.page_shift;
    }
    return true;
}

// What stages take one block for their rows, in nanoseconds by the model behind docs/simulated_cost.md: S is busy with
// the rows, or memory with the bytes; 0 for a stage that makes nothing. To begin with, each takes kStageSetupNs.
constexpr int64_t kStageSetupNs = 1000;
constexpr int64_t kLeastStageNs = 200;  // of a tail, whose entries are in no row

DSV4_HOST_DEVICE constexpr int64_t entries_ns(const StepParams& p, int32_t stage) {
    const EntryOutputs outputs = entry_outputs(p, stage);
    const int64_t pools = num_pools(slot_pools(p, stage));
    const int64_t positions = wants(p, outputs.positions) ? 1 : 0;
    const int64_t rows = stage == kStageTokens ? p.rows.num_rows : expected_rows(p, stage - kStageC4);
    // Blocks that make groups also count them.
    const int64_t row_ns = (stage == kStageTokens ? 115 : 145) + 28 * pools + 14 * positions;
    const int64_t bytes = 8 * (pools + positions) * outputs.entries;
    return pools + positions == 0 ? 0 : kLeastStageNs + max_of(rows * row_ns, bytes / kBytesPerNs);
}

DSV4_HOST_DEVICE constexpr int64_t rope_ns(const StepParams& p, int32_t stage) {
    const bool of_tokens = stage == kStageTokenRope;
    const int64_t entries = rope_entries(p, stage);
    const int64_t rows = of_tokens ? p.rows.num_rows : expected_rows(p, stage - kStageRope);
    const int64_t entries_read = of_tokens ? entries : rows;
    const int64_t tables = rope_tables(p, stage);
    const int64_t entry_bytes = rope_bytes(p, stage);
    const int64_t rows_ns = rows * (115 + 30 * tables);
    const int64_t tail_bytes = entry_bytes * (entries - entries_read);
    return tables == 0 ? 0
                       : kLeastStageNs + max_of(rows_ns, 2 * entry_bytes * entries_read / kBytesPerNs) +
                             tail_bytes / kBytesPerNs;
}

// Page tables of long rows are not among them: all blocks write them.
DSV4_HOST_DEVICE constexpr int64_t pages_ns(const StepParams& p, int32_t first_pool, int32_t last_pool, bool copies) {
    const int64_t rows = p.rows.num_rows;
    int64_t row_ns = 0;
    int64_t bytes = 0;
    for (int32_t pool = first_pool; pool <= last_pool; ++pool) {
        if (p.page_columns[pool] != 0 && !has_long_rows(p, pool) && copies_page_rows(p, pool) == copies) {
            row_ns += copies ? 28 : 55;
            bytes += 8 * rows * p.page_columns[pool];
        }
    }
    return row_ns == 0 ? 0 : kLeastStageNs + max_of(rows * (33 + row_ns), bytes / kBytesPerNs);
}

DSV4_HOST_DEVICE constexpr int64_t stage_ns(const StepParams& p, int32_t stage) {
    if (stage == kStageRows) {
        constexpr int32_t kRowFields =
            1 << kFieldStartPos | 1 << kFieldSeqUsed | 1 << kFieldKvLens | 1 << kFieldCuSeqlens | 1 << kFieldNumGroups;
        return (p.wanted & kRowFields) == 0 ? 0 : kLeastStageNs;
    }
    if (stage < kStageC4 || stage == kStageTokenRope) {
        return rope_ns(p, stage);
    }
    if (stage <= kStageTokens) {
        return entries_ns(p, stage);
    }
    if (stage == kStagePages) {
        return pages_ns(p, 0, kNumPools - 1, true);
    }
    if (stage < kStageStates) {
        return pages_ns(p, stage - kStageOtherPages, stage - kStageOtherPages, false);
    }
    if (stage < kStageWindows) {
        return p.state_columns[stage - kStageStates] == 0 ? 0 : int64_t{300} * p.rows.num_rows;
    }
    return p.window_rows == 0 ? 0 : int64_t{800} * (p.window_rows / p.window_block);
}

// The same of uniform_step_kernel.cpp, which makes RoPE rows with the entries that they belong to.
DSV4_HOST_DEVICE constexpr int64_t uniform_tokens_ns(const StepParams& p) {
    const int64_t pools = num_pools(slot_pools(p, kStageTokens));
    const int64_t positions = wants(p, kFieldPositions) ? 1 : 0;
    const int64_t tables = rope_tables(p, kStageTokenRope);
    const int64_t row_ns = 15 + 15 * positions + (pools == 0 ? 0 : 18 + 16 * pools) + 35 * tables;
    const int64_t rope_row_ns = 2 * p.rows.width * rope_bytes(p, kStageTokenRope) / kBytesPerNs;
    return pools + positions + tables == 0 ? 0 : kLeastStageNs + p.rows.num_rows * max_of(row_ns, rope_row_ns);
}

DSV4_HOST_DEVICE constexpr int64_t uniform_groups_ns(const StepParams& p, int32_t which) {
    const int64_t slots = wants(p, kFieldSlots + kC4 + which) ? 1 : 0;
    const int64_t tables = rope_tables(p, kStageRope + which);
    const int64_t rows = expected_rows(p, which);
    const int64_t row_ns = max_of(38 + 14 * slots + 26 * tables, 2 * rope_bytes(p, kStageRope + which) / kBytesPerNs);
    // Rows that complete no group are passed over by a search.
    const int64_t find_ns = rows < p.rows.num_rows ? 80 : 0;
    return slots + tables == 0 && !wants(p, kFieldGroupPositions + which)
               ? 0
               : kLeastStageNs + rows * (row_ns + find_ns) +
                     (p.capacity_groups[which] - rows) * row_ns / uniform_times(p, which);
}

DSV4_HOST_DEVICE constexpr int64_t uniform_stage_ns(const StepParams& p, int32_t stage) {
    return stage == kStageC4 || stage == kStageC128      ? uniform_groups_ns(p, stage - kStageC4)
           : stage == kStageTokens                       ? uniform_tokens_ns(p)
           : stage == kStageRows || stage == kStagePages ? stage_ns(p, stage)
                                                         : 0;
}

DSV4_HOST_DEVICE constexpr int64_t work_ns(const StepParams& p, bool uniform) {
    int64_t all = 0;
    for (int32_t stage = 0; stage < kNumStepStages; ++stage) {
        const int64_t ns = uniform ? uniform_stage_ns(p, stage) : stage_ns(p, stage);
        all += ns == 0 ? 0 : kStageSetupNs + ns;
    }
    return all;
}

// Whether the outputs hold the groups of any rows that bring no more tokens than they hold.
DSV4_HOST_DEVICE constexpr bool hold_any_groups(const StepParams& p) {
    for (int32_t which = 0; which < 2; ++which) {
        const int64_t ratio = ratio_of(which);
        const int64_t most = form_has_operand(p.rows.form) ? group_capacity(p.rows.num_tokens, p.rows.num_rows, ratio)
                                                           : p.rows.num_rows * ceil_div<int64_t>(p.rows.width, ratio);
        if (p.capacity_groups[which] < most) {
            return false;
        }
    }
    return true;
}

// Before a launch: what the rows' scan and the blocks' shares follow from.
DSV4_HOST_DEVICE constexpr void plan_launch(StepParams& p, bool uniform) {
    p.scanned_width = static_cast<int32_t>(max_of<int64_t>(-1, min_of(kMostScannedTokens, unchecked_width(p))));
    p.holds_any_groups = hold_any_groups(p) ? 1 : 0;
    p.other_page_tables = static_cast<int8_t>(other_page_tables(p));
    int32_t shift = 0;
    while ((work_ns(p, uniform) >> shift) + 2 * kNumStepStages > UINT16_MAX) {
        ++shift;
    }
    const int64_t unit = int64_t{1} << shift;
    p.stage_setup = static_cast<uint16_t>(ceil_div(kStageSetupNs, unit));
    p.work_before[0] = 0;
    for (int32_t stage = 0; stage < kNumStepStages; ++stage) {
        const int64_t work = ceil_div(uniform ? uniform_stage_ns(p, stage) : stage_ns(p, stage), unit);
        p.work_before[stage + 1] = static_cast<uint16_t>(p.work_before[stage] + (work == 0 ? 0 : p.stage_setup + work));
    }
}

DSV4_HOST_DEVICE constexpr int64_t step_blocks(const StepParams& p, bool uniform, int64_t cores) {
    int64_t chunk_bytes = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        chunk_bytes += has_long_rows(p, pool) ? int64_t{4} * p.rows.num_rows * p.page_columns[pool] : 0;
    }
    return blocks_for_work(work_ns(p, uniform) + chunk_bytes / kBytesPerNs, cores);
}

}  // namespace dsv4
