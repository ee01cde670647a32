// The rows of one step: where each row starts, how many tokens it brings, which values make it invalid. Shared by the
// ops that describe a step (docs/spec.md, a step). Lengths and positions are in raw tokens.
#pragma once

#include "common/compress.h"

struct StepRowsParams {
    int32_t num_rows;          // B: rows, padding rows included
    int32_t num_tokens;        // T: entries of the token-aligned outputs
    int32_t max_requests;      // rows of the request tables
    int32_t max_context_len;   // raw tokens that a request can hold
    int32_t max_seq_len;       // raw tokens that the page tables asked for have columns for
    int32_t width;             // tokens of every row in the uniform forms
    int8_t form;               // one of dsv4::kPrefill .. dsv4::kCommittedRagged
    int8_t has_requests;       // 0: row i of the batch is row i of the tables, and there are no req_pool_indices
    int8_t request_is_int64;   // req_pool_indices is int32 otherwise; likewise the next two
    int8_t length_is_int64;    // seq_lens
    int8_t operand_is_int64;   // prefix lengths, widths or offsets
    int8_t closes_cu_seqlens;  // the last offset is T, whatever the rows bring
    int16_t reserved;          // keeps the struct free of padding
};

namespace dsv4 {

// What seq_lens and the operand of a row are. "Final" lengths count the step's tokens, committed ones do not.
constexpr int32_t kPrefill = 0;          // final; prefix length
constexpr int32_t kFinal = 1;            // final; none: every row has `width` tokens
constexpr int32_t kFinalRagged = 2;      // final; width
constexpr int32_t kFinalOffsets = 3;     // final; [B + 1] offsets of the rows in the token tensor, from 0 on
constexpr int32_t kCommitted = 4;        // committed; none: every row has `width` tokens
constexpr int32_t kCommittedRagged = 5;  // committed; width

DSV4_HOST_DEVICE constexpr bool form_has_operand(int32_t form) { return form != kFinal && form != kCommitted; }

DSV4_HOST_DEVICE constexpr bool form_is_final(int32_t form) { return form <= kFinalOffsets; }

struct StepRow {
    int64_t start;        // tokens in the cache before the step; 0 for padding
    int64_t num_new;      // n_i; 0 for padding
    int64_t token_width;  // entries of the token tensor that belong to the row; a padding row may have some
};

DSV4_HOST_DEVICE constexpr bool is_padding(const StepRow& row) { return row.num_new == 0; }

DSV4_HOST_DEVICE constexpr int64_t final_length(const StepRow& row) { return row.start + row.num_new; }

// Attention kernels reject a length of 0, so that padding says 1.
DSV4_HOST_DEVICE constexpr int64_t kv_length(const StepRow& row) { return is_padding(row) ? 1 : final_length(row); }

// operand: of kFinalOffsets, the difference of the row's two offsets. Expects values that row_fault accepts.
DSV4_HOST_DEVICE constexpr StepRow row_step(int32_t form, int64_t length, int64_t operand, int64_t width) {
    const int64_t token_width = form == kPrefill ? length - operand : form_has_operand(form) ? operand : width;
    if (length == 0 || token_width == 0) {
        return StepRow{0, 0, token_width};
    }
    return StepRow{form_is_final(form) ? length - token_width : length, token_width, token_width};
}

// What is wrong with a row. The host raises; a device makes the row padding and records the code.
constexpr int32_t kRowValid = 0;
constexpr int32_t kNegativeLength = 1;
constexpr int32_t kNegativeOperand = 2;
constexpr int32_t kShorterThanOperand = 3;  // the prefix, or the tokens that a final length counts
constexpr int32_t kBeyondContext = 4;
constexpr int32_t kBeyondMaxSeqLen = 5;
constexpr int32_t kUnknownRequest = 6;
// Faults that depend on the rows before, the tables or the outputs.
constexpr int32_t kBeyondTokens = 7;
constexpr int32_t kBeyondGroups = 8;
constexpr int32_t kBeyondRing = 9;
constexpr int32_t kBeyondColumns = 10;

// A padding row's request index is never looked at. No operation here overflows, whatever the three values are.
DSV4_HOST_DEVICE constexpr int32_t row_fault(const StepRowsParams& p, int64_t request, int64_t length,
                                             int64_t operand) {
    if (length < 0) {
        return kNegativeLength;
    }
    if (form_has_operand(p.form) && operand < 0) {
        return kNegativeOperand;
    }
    if (p.form == kPrefill && operand > length) {
        return kShorterThanOperand;
    }
    const StepRow row = row_step(p.form, length, operand, p.width);
    if (is_padding(row)) {
        return kRowValid;
    }
    if (row.start < 0) {
        return kShorterThanOperand;
    }
    if (row.start > p.max_context_len || row.num_new > p.max_context_len - row.start) {
        return kBeyondContext;
    }
    if (final_length(row) > p.max_seq_len) {
        return kBeyondMaxSeqLen;
    }
    return request < 0 || request >= p.max_requests ? kUnknownRequest : kRowValid;
}

// The groups of `ratio` tokens that a row completes: [first_group, last_group).
DSV4_HOST_DEVICE constexpr int64_t first_group(const StepRow& row, int64_t ratio) {
    return groups_in(row.start, ratio);
}

DSV4_HOST_DEVICE constexpr int64_t last_group(const StepRow& row, int64_t ratio) {
    return groups_in(final_length(row), ratio);
}

DSV4_HOST_DEVICE constexpr int64_t num_groups(const StepRow& row, int64_t ratio) {
    return last_group(row, ratio) - first_group(row, ratio);
}

}  // namespace dsv4
