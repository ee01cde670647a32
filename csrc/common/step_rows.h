// The rows of one step: where each row starts, how many tokens it brings, which values make it invalid. Shared by the
// ops that describe a step (docs/spec.md, 3.1, 3.2, 3.6). Lengths and positions are in raw tokens.
#pragma once

#include "common/compress.h"

struct StepRowsParams {
    int64_t num_rows;          // B: rows, padding rows included
    int64_t num_tokens;        // T: entries of the token-aligned outputs
    int64_t max_requests;      // rows of the request tables
    int64_t max_context_len;   // raw tokens that a request can hold
    int64_t max_seq_len;       // raw tokens that the page tables must cover
    int64_t width;             // tokens of every row in the uniform verify form
    int32_t form;              // one of dsv4::kPrefill .. dsv4::kVerifyRagged
    int32_t request_is_int64;  // req_pool_indices is int32 otherwise; likewise the next two
    int32_t length_is_int64;   // seq_lens
    int32_t operand_is_int64;  // prefix_lens or ragged widths
};

namespace dsv4 {

// Meaning of (length, operand) of a row: (sequence with the new tokens, prefix), (sequence with the new token, -),
// (committed length, -), (committed length, width).
constexpr int32_t kPrefill = 0;
constexpr int32_t kDecode = 1;
constexpr int32_t kVerifyUniform = 2;
constexpr int32_t kVerifyRagged = 3;

DSV4_HOST_DEVICE constexpr bool form_has_operand(int32_t form) { return form == kPrefill || form == kVerifyRagged; }

struct StepRow {
    int64_t start;        // tokens in the cache before the step; 0 for padding
    int64_t num_new;      // n_i; 0 for padding
    int64_t token_width;  // entries of the token tensor that belong to the row; a padding row may have some
};

DSV4_HOST_DEVICE constexpr bool is_padding(const StepRow& row) { return row.num_new == 0; }

DSV4_HOST_DEVICE constexpr int64_t final_length(const StepRow& row) { return row.start + row.num_new; }

// Attention kernels reject a length of 0, so that padding says 1.
DSV4_HOST_DEVICE constexpr int64_t kv_length(const StepRow& row) { return is_padding(row) ? 1 : final_length(row); }

// Expects values that row_fault accepts.
DSV4_HOST_DEVICE constexpr StepRow row_step(int32_t form, int64_t length, int64_t operand, int64_t width) {
    const int64_t token_width = form == kPrefill         ? length - operand
                                : form == kDecode        ? 1
                                : form == kVerifyUniform ? width
                                                         : operand;
    if (length == 0 || token_width == 0) {
        return StepRow{0, 0, token_width};
    }
    return StepRow{length - (form == kPrefill || form == kDecode ? token_width : 0), token_width, token_width};
}

// What is wrong with a row. The host raises; a device makes the row padding and records the code.
constexpr int32_t kRowValid = 0;
constexpr int32_t kNegativeLength = 1;
constexpr int32_t kNegativeOperand = 2;
constexpr int32_t kPrefixBeyondLength = 3;
constexpr int32_t kBeyondContext = 4;
constexpr int32_t kBeyondMaxSeqLen = 5;
constexpr int32_t kUnknownRequest = 6;

// A padding row's request index is never looked at. No operation here overflows, whatever the three values are.
DSV4_HOST_DEVICE constexpr int32_t row_fault(const StepRowsParams& p, int64_t request, int64_t length,
                                             int64_t operand) {
    if (length < 0) {
        return kNegativeLength;
    }
    if (operand < 0) {
        return kNegativeOperand;
    }
    if (p.form == kPrefill && operand > length) {
        return kPrefixBeyondLength;
    }
    const StepRow row = row_step(p.form, length, operand, p.width);
    if (is_padding(row)) {
        return kRowValid;
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

}  // namespace dsv4
