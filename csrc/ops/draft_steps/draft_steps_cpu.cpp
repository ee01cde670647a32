#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <numeric>

#include "cpu/integers.h"
#include "cpu/pool_slots.h"
#include "cpu/rows_per_thread.h"
#include "ops/draft_steps/draft_steps.h"
#include "torch/check.h"
#include "torch/pool_addresses.h"

namespace dsv4 {
namespace {

// Bytes written below which a second thread costs more than it copies.
constexpr int64_t kBytesPerThread = 1 << 20;

// First pass over the requests: all values are checked before anything is written.
struct ScannedDrafts {
    c10::SmallVector<int64_t, 64> starts;    // [B]
    c10::SmallVector<int64_t, 64> requests;  // [B] rows of the tables
};

int64_t read(const void* values, int32_t is_int64, int64_t index) {
    return is_int64 ? static_cast<const int64_t*>(values)[index] : static_cast<const int32_t*>(values)[index];
}

void check_request(int64_t index, int64_t length, int64_t request, const DraftStepsParams& p) {
    const int32_t fault = draft_fault(length, request, p);
    TORCH_CHECK_VALUE(fault != kNegativeLength, "draft_steps: seq_lens[", index, "] is ", length,
                      ", expected at least 0");
    TORCH_CHECK_VALUE(fault != kBeyondContext, "draft_steps: seq_lens[", index, "] is ", length, ", expected at most ",
                      p.max_context_len, " (max_context_len)");
    TORCH_CHECK_VALUE(fault != kUnknownRequest || p.has_requests, "draft_steps: seq_lens has a length in row ", index,
                      ", expected at most ", p.max_requests, " rows (those of the tables)");
    TORCH_CHECK_VALUE(fault != kUnknownRequest, "draft_steps: req_pool_indices[", index, "] is ", request,
                      ", expected 0 <= index < ", p.max_requests, " (rows of the tables)");
    TORCH_CHECK_VALUE(fault != kBeyondRing, "draft_steps: row ", index, " of ", length, " tokens has its ", p.num_steps,
                      " drafts in more pages than the table of ", kPoolNames[p.pool], " has columns, ",
                      p.pools[p.pool].columns);
}

ScannedDrafts scan(const DraftStepsTensors& t, const DraftStepsParams& p) {
    const void* lengths = t.seq_lens.const_data_ptr();
    const void* requests = p.has_requests ? t.req_pool_indices.const_data_ptr() : nullptr;
    ScannedDrafts drafts;
    drafts.starts.reserve(p.num_requests);
    drafts.requests.reserve(p.num_requests);
    for (int64_t i = 0; i < p.num_requests; ++i) {
        const int64_t length = read(lengths, p.length_is_int64, i);
        const int64_t request = requests == nullptr ? i : read(requests, p.request_is_int64, i);
        check_request(i, length, request, p);
        drafts.starts.push_back(draft_start(length, kRowValid, p));
        drafts.requests.push_back(request);
    }
    return drafts;
}

// Slots of live drafts, from the tables or from a reservation.
class DraftSlots {
  public:
    DraftSlots(const DraftStepsTensors& t, const DraftStepsParams& p)
        : p_(p),
          tables_(p.pools, t.tables),
          reservation_(drafts_from_table(p) ? nullptr : t.reservation.const_data_ptr<int32_t>()) {}

    int32_t slot(int64_t request, int64_t entry, int64_t position, int64_t step) const {
        if (drafts_from_table(p_)) {
            const int64_t found = tables_.slot(p_.pool, request, position);
            return found == cpu::kNoSlot ? p_.dummy_slot : static_cast<int32_t>(found);
        }
        const int32_t reserved = reservation_[reserved_slots(entry, p_) + step];
        return reserved > 0 ? reserved : p_.dummy_slot;
    }

  private:
    const DraftStepsParams& p_;
    cpu::PoolSlots tables_;
    const int32_t* reservation_;  // [B * topk * S]; a slot of 0 or less is nobody's
};

struct Tables {
    const char* cos;  // [max_pos, D]
    const char* sin;
};

struct Buffers {
    int32_t* slots;      // [S, N]
    int64_t* positions;  // [S, N]
    int32_t* kv_lens;    // [S, N]
    char* cos;           // [S, N, D]
    char* sin;
};

// Entries [begin, end) of every step.
void write_entries(int64_t begin, int64_t end, const ScannedDrafts& drafts, const DraftSlots& slots,
                   const Tables& tables, const Buffers& out, const DraftStepsParams& p) {
    const int64_t row_bytes = p.rope_dim * p.rope_bytes;
    for (int64_t step = 0; step < p.num_steps; ++step) {
        int64_t request = draft_request(begin, p);
        int64_t draft = begin - request * p.topk;
        for (int64_t entry = begin; entry < end; ++entry) {
            const bool owned = request < p.num_requests;
            const int64_t start = owned ? drafts.starts[request] : p.max_context_len;
            const bool live = step < live_steps(start, p);
            const int64_t to = draft_output(step, entry, p);
            const int64_t position = draft_position(start, step, p);
            out.slots[to] = live ? slots.slot(drafts.requests[request], entry, position, step) : p.dummy_slot;
            out.positions[to] = position;
            out.kv_lens[to] = static_cast<int32_t>(draft_kv_len(position));
            std::copy_n(tables.cos + position * row_bytes, row_bytes, out.cos + to * row_bytes);
            std::copy_n(tables.sin + position * row_bytes, row_bytes, out.sin + to * row_bytes);
            if (++draft == p.topk) {
                draft = 0;
                ++request;
            }
        }
    }
}

void run(const DraftStepsParams& p, const DraftStepsTensors& t) {
    const ScannedDrafts drafts = scan(t, p);
    const DraftSlots slots(t, p);
    const Tables tables{static_cast<const char*>(t.rope_cos.const_data_ptr()),
                        static_cast<const char*>(t.rope_sin.const_data_ptr())};
    const Buffers buffers{t.slots.mutable_data_ptr<int32_t>(), t.positions.mutable_data_ptr<int64_t>(),
                          t.kv_lens.mutable_data_ptr<int32_t>(), static_cast<char*>(t.cos.mutable_data_ptr()),
                          static_cast<char*>(t.sin.mutable_data_ptr())};
    const int64_t entries_per_thread = cpu::rows_per_thread(kBytesPerThread, draft_entry_bytes(p));
    at::parallel_for(0, p.num_entries, entries_per_thread,
                     [&](int64_t begin, int64_t end) { write_entries(begin, end, drafts, slots, tables, buffers, p); });
}

// Starts of all entries, dummies included.
using Starts = c10::SmallVector<int64_t, 64>;

Starts scan_apart(const DraftsApartArguments& a, const DraftStepsParams& p) {
    const cpu::IntegerInput last_positions(a.last_positions);
    Starts starts(p.num_entries, p.max_context_len);
    for (int64_t i = 0; i < p.num_requests; ++i) {
        const int64_t length = length_behind(last_positions[i], p);
        const int32_t fault = draft_fault(length, i, p);
        TORCH_CHECK_VALUE(fault != kNegativeLength, "draft_steps: last_positions[", i, "] is ", last_positions[i],
                          ", expected at least -1 (padding)");
        starts[i] = draft_start(length, fault, p);
    }
    return starts;
}

void write_slots(const cpu::PoolSlots& slots, const DraftsApartArguments& a, const DraftsApartParams& p,
                 const Starts& starts, int64_t step) {
    const DraftStepsParams& steps = p.steps;
    const int32_t page_shift = steps.pools[steps.pool].page_shift;
    int32_t* out = a.slots[step].mutable_data_ptr<int32_t>();
    for (int64_t entry = 0; entry < steps.num_entries; ++entry) {
        const bool live = step < live_steps(starts[entry], steps);
        const int64_t found = live ? slots.slot(steps.pool, entry, starts[entry] + step) : cpu::kNoSlot;
        const int64_t slot = found == cpu::kNoSlot ? steps.dummy_slot : found;
        if (p.pairs != 0) {
            *out++ = static_cast<int32_t>(page_of(slot, page_shift));
            *out++ = static_cast<int32_t>(offset_in_page(slot, page_shift));
        } else {
            *out++ = static_cast<int32_t>(slot);
        }
    }
}

void write_keys(const DraftsApartArguments& a, const DraftsApartParams& p, int64_t step) {
    const cpu::IntegerInput seq_lens(a.seq_lens);
    const cpu::IntegerInput last_positions(a.last_positions);
    int32_t* keys = a.kv_lens[step].mutable_data_ptr<int32_t>();
    for (int64_t i = 0; i < p.steps.num_requests; ++i) {
        keys[i] = counts_keys(length_behind(last_positions[i], p.steps))
                      ? static_cast<int32_t>(counted_keys(seq_lens[i], step, p.steps))
                      : 0;
    }
    std::fill_n(keys + p.steps.num_requests, p.steps.num_entries - p.steps.num_requests, 0);
    if (p.has_offsets != 0) {
        int32_t* offsets = a.cu_seqlens[step].mutable_data_ptr<int32_t>();
        std::iota(offsets, offsets + p.steps.num_entries + 1, 0);
    }
}

void write_rope(const DraftsApartArguments& a, const DraftsApartParams& p, const Starts& starts, int64_t step) {
    const int64_t row_bytes = p.steps.rope_dim * p.steps.rope_bytes;
    for (int64_t table = 0; table < 2 * p.num_bases; ++table) {
        const char* from = static_cast<const char*>(a.rope[table].const_data_ptr());
        char* to = static_cast<char*>(a.rope_rows[rope_rows_of(table / 2, table % 2, step, p)].mutable_data_ptr());
        for (const int64_t start : starts) {
            std::copy_n(from + draft_position(start, step, p.steps) * row_bytes, row_bytes, to);
            to += row_bytes;
        }
    }
}

// A thread takes whole steps.
void run_apart(const DraftsApartParams& p, const DraftsApartArguments& a) {
    const Starts starts = scan_apart(a, p.steps);
    std::array<at::Tensor, kNumPools> tables;
    tables[p.steps.pool] = a.block_table;
    const cpu::PoolSlots slots(p.steps.pools, tables);
    const int64_t step_bytes = 2 * p.num_bases * p.steps.num_entries * p.steps.rope_dim * p.steps.rope_bytes;
    at::parallel_for(0, p.steps.num_steps, cpu::rows_per_thread(kBytesPerThread, step_bytes),
                     [&](int64_t begin, int64_t end) {
                         for (int64_t step = begin; step < end; ++step) {
                             write_slots(slots, a, p, starts, step);
                             write_keys(a, p, step);
                             write_rope(a, p, starts, step);
                         }
                     });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) {
    register_draft_steps<&run>(m);
    register_drafts_apart<&run_apart>(m);
}

}  // namespace dsv4
