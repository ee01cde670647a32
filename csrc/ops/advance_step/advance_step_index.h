// From one verify's accepted lengths to the next step: parameters, launch plan and index arithmetic, shared by the CPU
// loops and the device kernel (docs/spec.md, advance step). Lengths and positions are in raw tokens.
#pragma once

#include "common/launch_plan.h"
#include "common/step_launch.h"

struct AdvanceStepParams {
    int64_t num_rows;           // B: rows, padding rows included
    int64_t num_tokens;         // T: entries of token_ids, rows of hidden_states
    int64_t max_requests;       // rows of the request tables
    int64_t max_context_len;    // raw tokens that a request can hold
    int64_t width;              // tokens of every row where there are no cu_seqlens
    int64_t full_row_elems;     // stride between two rows of a request table; 0: the pool does not exist
    int64_t swa_row_elems;
    int64_t hidden_row_halves;  // 16-bit units of a row of hidden_states, which are moved as bits; 0 without them
    int32_t request_is_int64;   // req_pool_indices is int32 otherwise; likewise the next three
    int32_t length_is_int64;    // seq_lens, old and new
    int32_t accepted_is_int64;
    int32_t token_is_int64;     // token_ids, given and newest
    int32_t has_cu_seqlens;
    int32_t in_place;           // the new lengths overwrite the old ones
};

namespace dsv4 {

// What is wrong with a row. The host raises; a device makes the row padding and records the code.
constexpr int32_t kAdvanceValid = 0;
constexpr int32_t kAdvanceNegativeLength = 1;
constexpr int32_t kAdvanceBeyondContext = 2;
constexpr int32_t kAdvanceBadTokens = 3;
constexpr int32_t kAdvanceBadAccepted = 4;
constexpr int32_t kAdvanceUnknownRequest = 5;

// A row as the verify left it. All zero for padding.
struct VerifiedRow {
    int64_t request;
    int64_t length;       // committed before the verify; 0: padding, whose other values are never looked at
    int64_t accepted;     // 0: the row sat out, and only its length is looked at
    int64_t first_token;  // its tokens are [first_token, end_token)
    int64_t end_token;
};

DSV4_HOST_DEVICE constexpr bool has_accepted(const VerifiedRow& row) { return row.length != 0 && row.accepted != 0; }

// No operation here overflows, whatever the values are.
DSV4_HOST_DEVICE constexpr int32_t advance_fault(const VerifiedRow& row, const AdvanceStepParams& p) {
    if (row.length < 0) {
        return kAdvanceNegativeLength;
    }
    if (row.length > p.max_context_len) {
        return kAdvanceBeyondContext;
    }
    if (!has_accepted(row)) {
        return kAdvanceValid;
    }
    if (row.first_token < 0 || row.end_token < row.first_token || row.end_token > p.num_tokens) {
        return kAdvanceBadTokens;
    }
    if (row.accepted < 0 || row.accepted > row.end_token - row.first_token) {
        return kAdvanceBadAccepted;
    }
    if (row.accepted > p.max_context_len - row.length) {
        return kAdvanceBeyondContext;
    }
    return row.request < 0 || row.request >= p.max_requests ? kAdvanceUnknownRequest : kAdvanceValid;
}

// Which of a row's values a fault is about.
DSV4_HOST_DEVICE constexpr int64_t advance_faulty_value(int32_t fault, const VerifiedRow& row) {
    return fault == kAdvanceBadTokens        ? row.end_token
           : fault == kAdvanceBadAccepted    ? row.accepted
           : fault == kAdvanceUnknownRequest ? row.request
                                             : row.length;
}

DSV4_HOST_DEVICE constexpr int64_t advanced_length(const VerifiedRow& row) {
    return has_accepted(row) ? row.length + row.accepted : row.length;
}

DSV4_HOST_DEVICE constexpr int64_t extend_width(const VerifiedRow& row) { return has_accepted(row) ? row.accepted : 0; }

// The input whose output was sampled last: the row's last accepted token. Of a row that accepted something.
DSV4_HOST_DEVICE constexpr int64_t sampled_token(const VerifiedRow& row) { return row.first_token + row.accepted - 1; }

// Whether a draft step can follow: there is a position for the newest token.
DSV4_HOST_DEVICE constexpr bool can_draft(const VerifiedRow& row, const AdvanceStepParams& p) {
    return has_accepted(row) && advanced_length(row) < p.max_context_len;
}

DSV4_HOST_DEVICE constexpr int64_t draft_slot_offset_elems(const VerifiedRow& row, int64_t row_elems) {
    return row.request * row_elems + advanced_length(row);
}

constexpr int64_t kAdvanceChunkRows = 256;        // rows that are read and written at a time
constexpr int64_t kHiddenTileHalves = 32 * 1024;  // 64 KB; a block has two tiles
constexpr int64_t kHalvesPerUbBlock = kUbBlockBytes / 2;
constexpr int64_t kRowShare = 8;              // rows whose 32-bit outputs fill 32 bytes: neighbours do not meet in them
constexpr int64_t kHiddenShareHalves = 256;   // 512 bytes
constexpr int64_t kAdvanceRowBytes = 44;      // written for a row beside its hidden states
constexpr int64_t kAdvanceGrainBytes = 16 * 1024;

// A block's rows of everything that has one entry a row.
DSV4_HOST_DEVICE constexpr BlockShare advance_rows(const AdvanceStepParams& p, int64_t block, int64_t blocks) {
    return block_share(p.num_rows, kRowShare, block, blocks);
}

// A block's 16-bit units of the hidden rows, by bytes. When lengths change in place, nobody but the block that writes a
// row's length may read it, so that its hidden rows are the block's too.
DSV4_HOST_DEVICE constexpr BlockShare advance_hidden(const AdvanceStepParams& p, int64_t block, int64_t blocks) {
    const int64_t align = p.in_place != 0 ? kRowShare * p.hidden_row_halves : kHiddenShareHalves;
    return p.hidden_row_halves == 0 ? BlockShare{0, 0}
                                    : block_share(p.num_rows * p.hidden_row_halves, align, block, blocks);
}

// The row behind the last one of which a share has a part.
DSV4_HOST_DEVICE constexpr int64_t hidden_end_row(const AdvanceStepParams& p, const BlockShare& share) {
    return p.hidden_row_halves == 0 ? 0 : ceil_div(share.end, p.hidden_row_halves);
}

// Stretches of hidden rows that are moved at a time: whole rows where they fit, otherwise a part of one.
struct HiddenTile {
    int64_t row;
    int64_t offset_halves;  // in the row
    int64_t rows;
    int64_t row_halves;    // of each row
    int64_t pitch_halves;  // between two rows in UB
};

DSV4_HOST_DEVICE constexpr HiddenTile hidden_tile(const AdvanceStepParams& p, int64_t begin, int64_t end) {
    const int64_t row_halves = p.hidden_row_halves;
    const int64_t row = begin / row_halves;
    const int64_t offset = begin - row * row_halves;
    const int64_t pitch = round_up<int64_t>(row_halves, kHalvesPerUbBlock);
    if (offset == 0 && end - begin >= row_halves && pitch <= kHiddenTileHalves) {
        const int64_t rows = min_of((end - begin) / row_halves, kHiddenTileHalves / pitch);
        return HiddenTile{row, 0, min_of(rows, kAdvanceChunkRows), row_halves, pitch};
    }
    const int64_t halves = min_of(min_of(row_halves - offset, end - begin), kHiddenTileHalves);
    return HiddenTile{row, offset, 1, halves, round_up<int64_t>(halves, kHalvesPerUbBlock)};
}

DSV4_HOST_DEVICE constexpr int64_t advance_blocks(const AdvanceStepParams& p, int64_t cores) {
    return blocks_for(p.num_rows * (kAdvanceRowBytes + 2 * p.hidden_row_halves), kAdvanceGrainBytes, cores);
}

}  // namespace dsv4
