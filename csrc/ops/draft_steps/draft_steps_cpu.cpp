#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

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
void write_entries(int64_t begin, int64_t end, const ScannedDrafts& drafts, const DraftSlots& slots, const Tables& tables,
                   const Buffers& out, const DraftStepsParams& p) {
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
    at::parallel_for(0, p.num_entries, entries_per_thread, [&](int64_t begin, int64_t end) {
        write_entries(begin, end, drafts, slots, tables, buffers, p);
    });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_draft_steps<&run>(m); }

}  // namespace dsv4
