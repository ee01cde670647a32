// How blocks share a step on a device: its stages, what each of them takes and makes, and a block's parts of them.
#pragma once

#include "common/uneven_share.h"
#include "ops/step/step_index.h"

namespace dsv4 {

// Stages of the kernel, in their order. Blocks share the work of all of them, one stage after the other, so that a block
// has part in a few: setting a stage up costs as much as a few rows of it.
constexpr int32_t kStageRows = 0;
constexpr int32_t kStageRope = 1;  // of both ratios
constexpr int32_t kStageC4 = 3;    // positions and slots
constexpr int32_t kStageC128 = 4;
constexpr int32_t kStageTokens = 5;  // positions and slots. No stage from here on needs to know of groups
constexpr int32_t kStageTokenRope = 6;
constexpr int32_t kStagePages = 7;       // tables whose rows are copied
constexpr int32_t kStageOtherPages = 8;  // + pool
constexpr int32_t kStageStates = 14;
constexpr int32_t kStageWindows = 16;
constexpr int32_t kNumStepStages = 17;
static_assert(sizeof(StepParams::work_before) == (kNumStepStages + 1) * sizeof(uint16_t));

// Times the time of an entry of the tail that one of a row takes: of slots and positions, and of RoPE rows.
constexpr int64_t kEntryTimes = 16;
constexpr int64_t kRopeTimes = 8;

// int32 of UB that a row takes in device/uniform_tokens.h, beside its RoPE rows.
constexpr int64_t kUniformRowWords = kLaneElems * 33;

// Rows of `width` tokens, at most 8, whose int32 together take whole 32-byte pieces.
DSV4_HOST_DEVICE constexpr int64_t uniform_share_rows(int32_t width) { return kLaneElems / (width & -width); }

// What comes entry by entry: for tokens, or for the groups of 1 << shift tokens.
struct EntryOutputs {
    int32_t stage;
    int32_t shift;
    int32_t positions;  // the field of their positions
    int64_t entries;
};

DSV4_HOST_DEVICE constexpr EntryOutputs entry_outputs(const StepParams& p, int32_t stage) {
    return stage == kStageTokens ? EntryOutputs{stage, 0, kFieldPositions, p.rows.num_tokens}
           : stage == kStageC4   ? EntryOutputs{stage, kShiftC4, kFieldGroupPositions, p.capacity_groups[0]}
                                 : EntryOutputs{stage, kShiftC128, kFieldGroupPositionsC128, p.capacity_groups[1]};
}

// A bit for each pool whose slots a stage makes.
DSV4_HOST_DEVICE constexpr uint32_t slot_pools(const StepParams& p, int32_t stage) {
    constexpr uint32_t kGroups = 1 << kC4 | 1 << kC128;
    const uint32_t pools = stage == kStageTokens ? ~kGroups : 1 << (kC4 + stage - kStageC4);
    return static_cast<uint32_t>(p.wanted) >> kFieldSlots & ((1 << kNumPools) - 1) & pools;
}

// Times the time of an entry of the tail that a group takes in device/uniform_groups.h. RoPE rows of a tail have bytes.
DSV4_HOST_DEVICE constexpr int64_t uniform_times(const StepParams& p, int32_t which) {
    return wants(p, kFieldC4Cos + 2 * which) || wants(p, kFieldC4Sin + 2 * which) ? 8 : 64;
}

// Outputs of a stage of RoPE rows: a cosine and a sine at the positions of groups, or of both bases at those of tokens.
struct RopeOutputs {
    int32_t field;  // the first of them; tables lie in the order of the fields
    int32_t count;
};

DSV4_HOST_DEVICE constexpr RopeOutputs rope_outputs(int32_t stage) {
    return stage == kStageTokenRope ? RopeOutputs{kFieldMainCos, kNumTokenRope}
                                    : RopeOutputs{kFieldC4Cos + 2 * (stage - kStageRope), 2};
}

// Entries of each of them.
DSV4_HOST_DEVICE constexpr int64_t rope_entries(const StepParams& p, int32_t stage) {
    return stage == kStageTokenRope ? p.rows.num_tokens : p.capacity_groups[stage - kStageRope];
}

// The rows of one of them; none where they have no bytes.
struct RopeRow {
    int64_t max_pos;  // rows of the table
    int32_t bytes;
    int32_t elem_bytes;
};

DSV4_HOST_DEVICE constexpr RopeRow rope_row(const StepParams& p, int32_t stage, int32_t number) {
    if (stage == kStageTokenRope) {
        const int32_t elem_bytes = element_bytes(p.token_rope_type[number / 2]);
        return RopeRow{p.token_max_pos[number / 2], p.token_rope_dim[number / 2] * elem_bytes, elem_bytes};
    }
    const int32_t elem_bytes = element_bytes(kFloat32);
    return RopeRow{p.max_pos, p.rope_dim * elem_bytes, elem_bytes};
}

// Whether the rows of a page table that is asked for are copies of a table's, and fit into a tile.
DSV4_HOST_DEVICE constexpr bool copies_page_rows(const StepParams& p, int32_t pool) {
    const PoolAddress& a = p.pools[pool];
    const int32_t columns = p.page_columns[pool];
    return columns != 0 && columns <= kPageTileEntries && a.kind == kPages && a.is_int64 == 0 && columns <= a.columns;
}

// Whether all blocks write a row of a page table, one after the other, and share no part of a stage.
DSV4_HOST_DEVICE constexpr bool has_long_rows(const StepParams& p, int32_t pool) {
    return p.page_columns[pool] > kPageTileEntries;
}

// Whether a core's UB has room for long rows beside what the stages use one after the other.
DSV4_HOST_DEVICE constexpr bool has_lasting_scratch(const StepParams& p) {
    const int64_t elems = kRowArrays * row_array_elems(p.rows.num_rows) + kTileEntries + 2 * kScratchElems;
    return p.other_page_tables != 0 && elems * static_cast<int64_t>(sizeof(int32_t)) <= kUbBudgetBytes;
}

// Part [begin, end) of a stage, of `whole`.
struct StagePart {
    int64_t begin;
    int64_t end;
    int64_t whole;

    DSV4_HOST_DEVICE constexpr bool empty() const { return begin == end; }

    // Of `count` items, cut at multiples of `align`.
    DSV4_HOST_DEVICE constexpr BlockShare share(int64_t count, int64_t align) const {
        const int64_t chunks = ceil_div<int64_t>(count, align);
        return empty() ? BlockShare{0, 0}
                       : BlockShare{min_of<int64_t>(count, chunks * begin / whole * align),
                                    min_of<int64_t>(count, chunks * end / whole * align)};
    }

    // The first `live` of them belong to rows and take `times` the time of the others, which are all alike and made
    // together.
    DSV4_HOST_DEVICE constexpr BlockShare uneven_share(int64_t count, int64_t live, int64_t times, int64_t align) const {
        return empty() ? BlockShare{0, 0}
                       : BlockShare{uneven_share_begin(count, live, times, align, begin, whole),
                                    uneven_share_begin(count, live, times, align, end, whole)};
    }
};

// The work of a block, of all stages one behind the other, what it takes to begin with them included. A block that goes
// on with a stage of the block before begins with it again; so do nearly all, so that they stay equal.
DSV4_HOST_DEVICE constexpr BlockShare block_work(const StepParams& p, int64_t block, int64_t blocks) {
    const int64_t all = p.work_before[kNumStepStages];
    return BlockShare{all * block / blocks, all * (block + 1) / blocks};
}

DSV4_HOST_DEVICE constexpr StagePart stage_part(const StepParams& p, int32_t stage, const BlockShare& work) {
    const int64_t before = p.work_before[stage] + p.stage_setup;
    const int64_t whole = max_of<int64_t>(0, p.work_before[stage + 1] - before);
    return StagePart{max_of<int64_t>(0, min_of(whole, work.begin - before)),
                     max_of<int64_t>(0, min_of(whole, work.end - before)), whole};
}

// Whether a block has part in any of the stages from `first` to `last`.
DSV4_HOST_DEVICE constexpr bool has_part(const StepParams& p, int32_t first, int32_t last, const BlockShare& work) {
    return work.begin < p.work_before[last + 1] && work.end > p.work_before[first];
}

// Whether a block has to know how many groups the rows before each row complete.
DSV4_HOST_DEVICE constexpr bool counts_groups(const StepParams& p, const BlockShare& work) {
    return p.holds_any_groups == 0 || work.begin < p.work_before[kStageTokens];
}

}  // namespace dsv4
