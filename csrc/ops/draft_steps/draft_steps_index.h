// Draft steps: parameters, launch plan and index arithmetic (docs/spec.md, draft steps). An entry is one draft of one
// request; entries are laid out (request, topk). Lengths and positions are in raw tokens.
#pragma once

#include "common/launch_plan.h"
#include "common/pool_address.h"
#include "common/step_launch.h"

struct DraftStepsParams {
    PoolAddress pools[6];      // of the tables; none exists when the slots come from a reservation
    int64_t num_requests;      // B: entries of seq_lens
    int64_t num_entries;       // N: columns of the outputs, at least B * topk; those behind are dummies
    int64_t max_requests;      // rows of the request tables
    int64_t max_context_len;   // raw tokens that a request can hold
    int64_t rope_dim;          // D: elements of a RoPE row
    int32_t topk;              // drafts of a request in each step
    int32_t num_steps;         // S
    int32_t length_is_int64;   // seq_lens is int32 otherwise
    int32_t request_is_int64;  // likewise req_pool_indices
    int32_t rope_bytes;        // of an element of the RoPE tables: 2 or 4
    int32_t pool;              // whose slots the drafts take; -1: a reservation's
    int32_t has_requests;      // 0: request i is row i of the tables
    int32_t dummy_slot;        // what stands for no slot
    int32_t reserved;          // keeps the struct free of padding
};

// Where everything lies in global memory; 0 for what is not given.
struct DraftStepsAddresses {
    uint64_t tables[6];
    uint64_t reservation;
    uint64_t lengths;
    uint64_t requests;
    uint64_t rope_cos;
    uint64_t rope_sin;
    uint64_t slots;
    uint64_t positions;
    uint64_t kv_lens;
    uint64_t cos;
    uint64_t sin;
};

// The form whose steps have buffers of their own: slots come from a table of pages, and keys are counted from lengths
// of their own.
struct DraftsApartParams {
    DraftStepsParams steps;  // topk is 1; num_requests, num_entries and the tables are those of a step
    int32_t num_bases;       // pairs of RoPE tables: 0 to 2
    int32_t pairs;           // slots are pairs (page, offset) of int32
    int32_t keys_are_int64;  // seq_lens is int32 otherwise
    int32_t has_offsets;     // cu_seqlens is asked for
};

// Buffers of one step, a cache line.
struct DraftStepAddresses {
    uint64_t slots;
    uint64_t kv_lens;
    uint64_t cu_seqlens;
    uint64_t cos[2];  // by base
    uint64_t sin[2];
    uint64_t reserved;  // keeps a step in a line
};

struct DraftsApartAddresses {
    uint64_t block_table;
    uint64_t last_positions;
    uint64_t seq_lens;
    uint64_t rope_cos[2];  // by base
    uint64_t rope_sin[2];
    uint64_t reserved;  // starts the steps at a line
    DraftStepAddresses steps[16];
};

namespace dsv4 {

constexpr int64_t kMaxStepsApart = 16;
constexpr int32_t kMaxDraftBases = 2;

DSV4_HOST_DEVICE constexpr bool drafts_from_table(const DraftStepsParams& p) { return p.pool >= 0; }

// Whether the drafts of a request lie in more pages than a ring of columns tells apart.
DSV4_HOST_DEVICE constexpr bool beyond_ring(int64_t length, const DraftStepsParams& p) {
    if (!drafts_from_table(p) || length == 0 || p.pools[p.pool].kind != kPages) {
        return false;
    }
    const PoolAddress& a = p.pools[p.pool];
    const int64_t end = min_of<int64_t>(length + p.num_steps, p.max_context_len);
    return end > length && page_of(end - 1, a.page_shift) - page_of(length, a.page_shift) >= a.columns;
}

// What is wrong with a request, in the codes of step_rows.h. The index of a padding row is never looked at.
DSV4_HOST_DEVICE constexpr int32_t draft_fault(int64_t length, int64_t request, const DraftStepsParams& p) {
    if (length < 0) {
        return kNegativeLength;
    }
    if (length > p.max_context_len) {
        return kBeyondContext;
    }
    const bool unknown = drafts_from_table(p) && length > 0 && (request < 0 || request >= p.max_requests);
    if (unknown) {
        return kUnknownRequest;
    }
    return beyond_ring(length, p) ? kBeyondRing : kRowValid;
}

// Position of the first draft. Padding and bad requests start where no draft is live.
DSV4_HOST_DEVICE constexpr int64_t draft_start(int64_t length, int32_t fault, const DraftStepsParams& p) {
    return fault == kRowValid && length > 0 ? length : p.max_context_len;
}

// Drafts of an entry that lie within the context; the later ones are dummies.
DSV4_HOST_DEVICE constexpr int64_t live_steps(int64_t start, const DraftStepsParams& p) {
    return min_of<int64_t>(p.num_steps, p.max_context_len - start);
}

// Position of an entry's draft in step `step`; a dummy is at 0.
DSV4_HOST_DEVICE constexpr int64_t draft_position(int64_t start, int64_t step, const DraftStepsParams& p) {
    return step < live_steps(start, p) ? start + step : 0;
}

// A draft sees itself and all before; a dummy says 1, since attention kernels reject 0.
DSV4_HOST_DEVICE constexpr int64_t draft_kv_len(int64_t position) { return position + 1; }

// A request's length from the position of its newest token. Where that lies behind the context there are no drafts, as
// at its end.
DSV4_HOST_DEVICE constexpr int64_t length_behind(int64_t last_position, const DraftStepsParams& p) {
    return min_of<int64_t>(last_position, p.max_context_len - 1) + 1;
}

// Whether a request of this length is one, and no padding, where keys are counted from lengths of their own.
DSV4_HOST_DEVICE constexpr bool counts_keys(int64_t length) { return length > 0; }

// Keys before the drafts of a request with a length of its own, whatever that is.
DSV4_HOST_DEVICE constexpr int64_t keys_before(int64_t seq_len, const DraftStepsParams& p) {
    return max_of<int64_t>(0, min_of<int64_t>(seq_len, p.max_context_len));
}

// Keys of a draft where they are counted from a length of their own; behind the context they count from 1 again.
DSV4_HOST_DEVICE constexpr int64_t counted_keys(int64_t seq_len, int64_t step, const DraftStepsParams& p) {
    const int64_t keys = keys_before(seq_len, p) + step + 1;
    return keys > p.max_context_len ? keys - p.max_context_len : keys;
}

DSV4_HOST_DEVICE constexpr int64_t draft_request(int64_t entry, const DraftStepsParams& p) { return entry / p.topk; }

// Entries that belong to requests; the later ones are dummies.
DSV4_HOST_DEVICE constexpr int64_t owned_entries(const DraftStepsParams& p) { return p.num_requests * p.topk; }

// Where an entry's slots start in a reservation, laid out (request, topk, step).
DSV4_HOST_DEVICE constexpr int64_t reserved_slots(int64_t entry, const DraftStepsParams& p) {
    return entry * p.num_steps;
}

// Where an entry of a step lies in the outputs, in elements of slots and in rows of cos and sin.
DSV4_HOST_DEVICE constexpr int64_t draft_output(int64_t step, int64_t entry, const DraftStepsParams& p) {
    return step * p.num_entries + entry;
}

// 16-bit units of so many RoPE rows: a device moves them as these, whatever their elements are.
DSV4_HOST_DEVICE constexpr int64_t draft_rope_halves(int64_t rows, const DraftStepsParams& p) {
    return rows * p.rope_dim * p.rope_bytes / 2;
}

// Output of an entry, in all steps.
DSV4_HOST_DEVICE constexpr int64_t draft_entry_bytes(const DraftStepsParams& p) {
    return p.num_steps * (16 + 2 * p.rope_dim * p.rope_bytes);
}

DSV4_HOST_DEVICE constexpr int64_t draft_bytes(const DraftStepsParams& p) {
    return p.num_entries * draft_entry_bytes(p);
}

// Device: requests, and dummies in groups of topk, are shared out and cut into tiles. Slots of a tile take one row of
// draft_pitch_elems() an entry on their way.
constexpr int64_t kDraftTileElems = 2048;
constexpr int64_t kMaxDraftTileEntries = kDraftTileElems / (kUbBlockBytes / 4);
// UB of a tile. For each element: its slot as it comes and as it goes, position as int32 and int64, length, a
// temporary. For each entry: start, offset, and room for two inputs as int64.
constexpr int64_t kDraftElemBytes = 4 + 4 + 4 + 8 + 4 + 4;
constexpr int64_t kDraftEntryBytes = 4 + 4 + 8 + 8;
constexpr int64_t kDraftTileBytes = kDraftTileElems * kDraftElemBytes + kMaxDraftTileEntries * kDraftEntryBytes;
// Where slots come from tables, what finding them takes.
constexpr int64_t kDraftSlotBytes = (kMaxDeviceLanes + kScratchElems) * 4;

DSV4_HOST_DEVICE constexpr int64_t draft_rows(const DraftStepsParams& p) {
    return ceil_div<int64_t>(p.num_entries, p.topk);
}

constexpr int64_t kDraftRowNs = 400;  // of a request in all steps

DSV4_HOST_DEVICE constexpr int64_t draft_blocks(const DraftStepsParams& p, int64_t cores) {
    const int64_t rows = draft_rows(p);
    // Shares are cut at 8 requests, so that no two blocks write into one 32-byte piece of a step.
    return even_blocks(ceil_div<int64_t>(rows, kLaneElems),
                       blocks_for_work(kDraftRowNs * rows + 2 * draft_bytes(p) / kBytesPerNs, cores));
}

DSV4_HOST_DEVICE constexpr int64_t draft_pitch_elems(const DraftStepsParams& p) {
    return round_up<int64_t>(p.num_steps, kUbBlockBytes / 4);
}

// Entries whose slots fit into a tile, a multiple of 8 so that every row of a tile starts aligned.
DSV4_HOST_DEVICE constexpr int64_t draft_tile_entries(const DraftStepsParams& p) {
    return kDraftTileElems / draft_pitch_elems(p) / 8 * 8;
}

// Rows (requests) of a tile; 0 when those of a single one do not fit.
DSV4_HOST_DEVICE constexpr int64_t draft_tile_rows(const DraftStepsParams& p) { return draft_tile_entries(p) / p.topk; }

DSV4_HOST_DEVICE constexpr int64_t draft_rope_pitch_bytes(const DraftStepsParams& p) {
    return ub_row_bytes(p.rope_dim * p.rope_bytes);
}

// What the form apart keeps beside a tile: 0, 1, .., where the halves of pairs lie, and a length and a number of keys
// of each entry.
constexpr int64_t kPairElems = 2 * kMaxDraftTileEntries;
constexpr int64_t kDraftsApartElems = 2 * kPairElems + kLaneElems + 3 * kMaxDraftTileEntries;

// Rows of one RoPE table that fit into the rest of UB, behind a row of position 0; other_elems of UB are somebody's.
DSV4_HOST_DEVICE constexpr int64_t draft_rope_tile_rows(const DraftStepsParams& p, int64_t other_elems) {
    const int64_t used = kDraftTileBytes + (drafts_from_table(p) ? kDraftSlotBytes : 0) + 4 * other_elems;
    const int64_t rows = (kUbBudgetBytes - used) / (2 * draft_rope_pitch_bytes(p)) - 1;
    return min_of<int64_t>(kMaxCopyBlocks, rows);
}

}  // namespace dsv4
