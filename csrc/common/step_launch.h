// How a device takes the rows of a step: which rows it admits, what of them lies in UB, over how many blocks the work
// is shared. A core keeps a few numbers of every row, so that the number of rows is bounded.
#pragma once

#include "common/launch_plan.h"
#include "common/step_outputs.h"

namespace dsv4 {

constexpr int64_t kMaxDeviceRows = 4096;
constexpr int64_t kRowArrays = 6;                  // int32 numbers kept of a row
constexpr int64_t kTileEntries = 2048;             // entries of a one-dimensional output that are made at a time
constexpr int64_t kPageTileEntries = 1024;         // entries of a page table; each takes a 32-byte block on its way
constexpr int64_t kChunkRows = 512;                // rows whose inputs are read at a time
constexpr int64_t kLaneElems = kUbBlockBytes / 4;  // int32 or float32 in a 32-byte block
constexpr int64_t kMaxRopeDim = 2048;

// UB that the stages of a kernel use one after the other.
constexpr int64_t kScratchElems = kPageTileEntries * (kLaneElems + 2);
static_assert(kScratchElems >= kTileEntries * 4, "steps, values, and int64 values");
static_assert(kScratchElems >= round_up<int64_t>(kMaxDeviceRows + 1, kLaneElems), "kv lengths");
static_assert(kScratchElems >= 3 * kChunkRows * 2, "three int64 inputs");
static_assert(kScratchElems >= 4 * kMaxRopeDim, "two rows of both RoPE tables");

// A prefix has one entry more than there are rows.
DSV4_HOST_DEVICE constexpr int64_t row_array_elems(int64_t num_rows) {
    return round_up<int64_t>(num_rows + 1, kLaneElems);
}

static_assert((kRowArrays * row_array_elems(kMaxDeviceRows) + kTileEntries + kScratchElems) * 4 <= kUbBudgetBytes);

// Faults beyond those of row_fault, which depend on the rows before.
constexpr int32_t kBeyondTokens = 7;
constexpr int32_t kBeyondGroups = 8;

// What the rows before one have taken of the outputs, and what the outputs hold.
struct StepTotals {
    int64_t tokens;
    int64_t c4_groups;
    int64_t c128_groups;
};

struct AdmittedRow {
    StepRow row;
    int32_t fault;
};

DSV4_HOST_DEVICE constexpr int64_t num_groups(const StepRow& row, int64_t ratio) {
    return last_group(row, ratio) - first_group(row, ratio);
}

// A bad row is padding and keeps its tokens where that is possible, so that later rows stay in place.
DSV4_HOST_DEVICE constexpr int64_t tokens_of_bad_row(const StepRowsParams& p, int64_t length, int64_t operand) {
    if (form_has_operand(p.form) && (operand < 0 || (p.form == kPrefill && (length < 0 || operand > length)))) {
        return 0;
    }
    return row_step(p.form, length, operand, p.width).token_width;
}

DSV4_HOST_DEVICE constexpr AdmittedRow admit_row(const StepRowsParams& p, const StepTotals& before,
                                                 const StepTotals& limit, int64_t request, int64_t length,
                                                 int64_t operand) {
    const int32_t fault = row_fault(p, request, length, operand);
    const StepRow row = fault == kRowValid ? row_step(p.form, length, operand, p.width)
                                           : StepRow{0, 0, tokens_of_bad_row(p, length, operand)};
    if (row.token_width > limit.tokens - before.tokens) {
        return AdmittedRow{StepRow{0, 0, 0}, fault == kRowValid ? kBeyondTokens : fault};
    }
    if (num_groups(row, kRatioC4) > limit.c4_groups - before.c4_groups ||
        num_groups(row, kRatioC128) > limit.c128_groups - before.c128_groups) {
        return AdmittedRow{StepRow{0, 0, row.token_width}, kBeyondGroups};
    }
    return AdmittedRow{row, fault};
}

// Which of a row's values a fault is about.
DSV4_HOST_DEVICE constexpr int64_t faulty_value(int32_t fault, int64_t request, int64_t length, int64_t operand) {
    return fault == kUnknownRequest ? request : fault == kNegativeOperand ? operand : length;
}

constexpr int64_t kGrainBytes = 16 * 1024;  // output of a block, as far as there are cores

DSV4_HOST_DEVICE constexpr int64_t metadata_bytes(const StepRowsParams& rows, const StepMetadataParams& p) {
    const int64_t columns = p.swa_columns_pages + p.c4_columns_pages + p.c128_columns_pages + p.c4_state_columns_pages +
                            p.c128_state_columns_pages;
    return 8 * rows.num_tokens + 12 * (p.c4_capacity_groups + p.c128_capacity_groups) +
           4 * rows.num_rows * (4 + columns);
}

DSV4_HOST_DEVICE constexpr int64_t slot_bytes(const StepRowsParams& rows, const StepSlotsParams& p) {
    const int64_t token_pools = pool_exists(p.full_row_elems) + pool_exists(p.swa_row_elems) +
                                pool_exists(p.c4_state_row_elems) + pool_exists(p.c128_state_row_elems);
    return 4 * (token_pools * rows.num_tokens + p.c4_capacity_groups + p.c128_capacity_groups);
}

// Longest sequence whose pages fit into every page table; longer ones are bad rows.
DSV4_HOST_DEVICE constexpr int64_t covered_length(int64_t columns, int64_t row_elems, int64_t ratio, int32_t page_shift,
                                                  int64_t limit) {
    return pool_exists(row_elems) ? min_of<int64_t>(limit, (columns << page_shift) * ratio + ratio - 1) : limit;
}

DSV4_HOST_DEVICE constexpr int64_t covered_length(const StepMetadataParams& p, int64_t limit) {
    limit = covered_length(p.swa_columns_pages, p.swa_row_elems, 1, p.page_shift, limit);
    limit = covered_length(p.c4_columns_pages, p.c4_row_elems, kRatioC4, p.page_shift, limit);
    limit = covered_length(p.c128_columns_pages, p.c128_row_elems, kRatioC128, p.page_shift, limit);
    limit = covered_length(p.c4_state_columns_pages, p.c4_state_row_elems, 1, p.page_shift, limit);
    return covered_length(p.c128_state_columns_pages, p.c128_state_row_elems, 1, p.page_shift, limit);
}

}  // namespace dsv4
