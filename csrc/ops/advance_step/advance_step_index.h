// From one verify's accepted lengths to the next step: parameters, launch plan and index arithmetic, shared by the CPU
// loops and the device kernel (docs/spec.md, advance step). Lengths and positions are in raw tokens.
#pragma once

#include "common/launch_plan.h"
#include "common/pool_address.h"
#include "common/step_launch.h"

struct AdvanceStepParams {
    PoolAddress pools[6];
    int64_t num_rows;           // B: rows, padding rows included
    int64_t num_tokens;         // T: tokens of the step; rows of hidden_states
    int64_t max_requests;       // rows of the request tables
    int64_t max_context_len;    // raw tokens that a request can hold
    int64_t width;              // tokens of every row where there are no cu_seqlens
    int64_t hidden_row_halves;  // 16-bit units of a row of hidden_states, which are moved as bits; 0 without them
    int32_t num_samples;        // columns of samples; 0: accepted lengths and the tokens of all inputs are given
    int32_t dummy_slots[2];     // what stands for no slot in full and in swa
    int32_t wanted;             // bit f: output f is asked for
    int8_t has_requests;        // 0: row i of the batch is row i of the tables
    int8_t has_cu_seqlens;
    int8_t has_drafts;         // drafts that each row verified are given
    int8_t has_backup;         // so are tokens for rows without a sample
    int8_t lengths_are_final;  // seq_lens count the step's tokens
    int8_t request_is_int64;   // req_pool_indices is int32 otherwise; likewise the next four
    int8_t length_is_int64;    // seq_lens, old and new
    int8_t accepted_is_int64;
    int8_t drafts_is_int64;
    int8_t token_is_int64;  // token_ids, backup tokens and newest tokens
    int8_t in_place;        // the new lengths overwrite the old ones
    int8_t reserved[5];     // keeps the struct free of padding
};

// Where everything lies in global memory; 0 for what is not given or not asked for.
struct AdvanceStepAddresses {
    uint64_t tables[6];
    uint64_t requests;
    uint64_t lengths;
    uint64_t accepted;
    uint64_t tokens;  // [T], or [B, num_samples]
    uint64_t cu_seqlens;
    uint64_t drafts;
    uint64_t backup;
    uint64_t hidden;
    uint64_t fields[10];
};

namespace dsv4 {

// Outputs, each optional, B entries.
constexpr int32_t kAdvancedLengths = 0;    // like seq_lens
constexpr int32_t kAdvancedExtend = 1;     // int32: accepted inputs
constexpr int32_t kAdvancedTokens = 2;     // like token_ids
constexpr int32_t kAdvancedPositions = 3;  // int64
constexpr int32_t kAdvancedFullSlots = 4;  // int32
constexpr int32_t kAdvancedSwaSlots = 5;   // int32
constexpr int32_t kAdvancedSampled = 6;    // int64: index of the last accepted input
constexpr int32_t kAdvancedHidden = 7;     // [B, ..] like hidden_states
constexpr int32_t kAdvancedCounts = 8;     // int32: valid samples
constexpr int32_t kAdvancedRejected = 9;   // int32: inputs that were not accepted
constexpr int32_t kNumAdvancedFields = 10;
static_assert(sizeof(AdvanceStepAddresses::fields) == kNumAdvancedFields * sizeof(uint64_t));

DSV4_HOST_DEVICE constexpr bool wants(const AdvanceStepParams& p, int32_t field) {
    return (p.wanted >> field & 1) != 0;
}

// What is wrong with a row. The host raises; a device makes the row padding and records the code.
constexpr int32_t kAdvanceValid = 0;
constexpr int32_t kAdvanceNegativeLength = 1;
constexpr int32_t kAdvanceBeyondContext = 2;
constexpr int32_t kAdvanceBadTokens = 3;
constexpr int32_t kAdvanceBadAccepted = 4;
constexpr int32_t kAdvanceUnknownRequest = 5;
constexpr int32_t kAdvanceBadDrafts = 6;

// A row as the verify left it.
struct VerifiedRow {
    int64_t request;
    int64_t seq_len;      // as given; 0: padding, whose other values are never looked at
    int64_t count;        // accepted length as given, or valid samples
    int64_t drafts;       // that it verified, where they are given
    int64_t first_token;  // its tokens are [first_token, end_token)
    int64_t end_token;
};

// What becomes of it. All zero for padding.
struct AdvancedRow {
    int64_t length;    // committed before the step
    int64_t accepted;  // inputs that are committed by it
    int64_t rejected;  // inputs that are not
};

DSV4_HOST_DEVICE constexpr bool is_padding(const VerifiedRow& row) { return row.seq_len == 0; }

DSV4_HOST_DEVICE constexpr int64_t width_of(const VerifiedRow& row) { return row.end_token - row.first_token; }

// Whether the row's tokens are looked at: one that sat out has none, unless its length counts them.
DSV4_HOST_DEVICE constexpr bool has_tokens(const VerifiedRow& row, const AdvanceStepParams& p) {
    return !is_padding(row) && (row.count != 0 || p.lengths_are_final != 0 || p.has_drafts != 0);
}

// Of a row whose tokens are an interval of the step's. A row without drafts, such as a prefill chunk, keeps all of its
// inputs.
DSV4_HOST_DEVICE constexpr AdvancedRow advanced_row(const VerifiedRow& row, const AdvanceStepParams& p) {
    if (is_padding(row)) {
        return AdvancedRow{0, 0, 0};
    }
    const int64_t width = has_tokens(row, p) ? width_of(row) : 0;
    const int64_t rejected = p.has_drafts == 0 ? width - row.count : row.drafts > 0 ? row.drafts + 1 - row.count : 0;
    return AdvancedRow{p.lengths_are_final != 0 ? row.seq_len - width : row.seq_len, width - rejected, rejected};
}

// Inputs that may have been accepted, or samples that a row may have: one for each input that was judged. A row without
// drafts has its last input judged, if it has any.
DSV4_HOST_DEVICE constexpr int64_t most_accepted(const VerifiedRow& row, const AdvanceStepParams& p) {
    return p.has_drafts != 0 ? min_of(row.drafts + 1, width_of(row)) : width_of(row);
}

// No operation here overflows, whatever the values are.
DSV4_HOST_DEVICE constexpr int32_t advance_fault(const VerifiedRow& row, const AdvanceStepParams& p) {
    if (row.seq_len < 0) {
        return kAdvanceNegativeLength;
    }
    if (row.seq_len > p.max_context_len) {
        return kAdvanceBeyondContext;
    }
    if (!has_tokens(row, p)) {
        return kAdvanceValid;
    }
    if (row.first_token < 0 || row.end_token < row.first_token || row.end_token > p.num_tokens ||
        (p.lengths_are_final != 0 && width_of(row) > row.seq_len)) {
        return kAdvanceBadTokens;
    }
    if (p.has_drafts != 0 && (row.drafts < 0 || row.drafts > width_of(row) - (row.drafts != 0 ? 1 : 0))) {
        return kAdvanceBadDrafts;
    }
    if (row.count < 0 || row.count > most_accepted(row, p)) {
        return kAdvanceBadAccepted;
    }
    const AdvancedRow next = advanced_row(row, p);
    if (next.accepted > p.max_context_len - next.length) {
        return kAdvanceBeyondContext;
    }
    return row.request < 0 || row.request >= p.max_requests ? kAdvanceUnknownRequest : kAdvanceValid;
}

// Which of a row's values a fault is about.
DSV4_HOST_DEVICE constexpr int64_t advance_faulty_value(int32_t fault, const VerifiedRow& row) {
    return fault == kAdvanceBadTokens        ? row.end_token
           : fault == kAdvanceBadAccepted    ? row.count
           : fault == kAdvanceBadDrafts      ? row.drafts
           : fault == kAdvanceUnknownRequest ? row.request
                                             : row.seq_len;
}

DSV4_HOST_DEVICE constexpr int64_t advanced_length(const AdvancedRow& next) { return next.length + next.accepted; }

// The last input that was accepted, whose output was sampled last. Of a row that accepted something.
DSV4_HOST_DEVICE constexpr int64_t sampled_token(const VerifiedRow& row, const AdvancedRow& next) {
    return row.first_token + next.accepted - 1;
}

// Whether a draft step can follow: there is a position for the newest token.
DSV4_HOST_DEVICE constexpr bool can_draft(const AdvancedRow& next, const AdvanceStepParams& p) {
    return next.accepted != 0 && advanced_length(next) < p.max_context_len;
}

// Samples of a row before the first that is negative.
template <typename Read>
DSV4_HOST_DEVICE constexpr int64_t valid_samples(int64_t num_samples, const Read& read) {
    int64_t count = 0;
    while (count < num_samples && read(count) >= 0) {
        ++count;
    }
    return count;
}

constexpr int64_t kAdvanceChunkRows = 128;        // rows that are read and written at a time
constexpr int64_t kHiddenTileHalves = 16 * 1024;  // 32 KB; a block has two tiles
constexpr int64_t kTokenTileWords = 4096;         // 32-bit words of the tokens that are read at a time
constexpr int64_t kHalvesPerUbBlock = kUbBlockBytes / 2;
constexpr int64_t kRowShare = 8;             // rows whose 32-bit outputs fill 32 bytes: neighbours do not meet in them
constexpr int64_t kHiddenShareHalves = 256;  // 512 bytes
constexpr int64_t kAdvanceRowNs = 125;       // of a row, beside its hidden states

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

// 32-bit words of a token.
DSV4_HOST_DEVICE constexpr int64_t token_words(const AdvanceStepParams& p) { return p.token_is_int64 != 0 ? 2 : 1; }

// Entries of token_ids from one row to the next; 0 where rows say where theirs lie.
DSV4_HOST_DEVICE constexpr int64_t token_columns(const AdvanceStepParams& p) {
    return p.num_samples != 0 ? p.num_samples : p.width;
}

// Whether a device reads all tokens of a chunk's rows, with one copy; otherwise the newest one of each.
DSV4_HOST_DEVICE constexpr bool keeps_tokens(const AdvanceStepParams& p) {
    return token_columns(p) != 0 && token_columns(p) <= kTokenTileWords / (kAdvanceChunkRows * token_words(p));
}

DSV4_HOST_DEVICE constexpr int64_t advance_blocks(const AdvanceStepParams& p, int64_t cores) {
    const int64_t hidden_bytes = 2 * 2 * p.hidden_row_halves;
    const int64_t blocks = blocks_for_work(p.num_rows * (kAdvanceRowNs + hidden_bytes / kBytesPerNs), cores);
    return p.hidden_row_halves != 0 ? blocks : even_blocks(ceil_div(p.num_rows, kRowShare), blocks);
}

}  // namespace dsv4
