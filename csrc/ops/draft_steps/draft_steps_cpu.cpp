#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>

#include <cstring>

#include "ops/draft_steps/draft_steps.h"
#include "torch/check.h"

namespace dsv4 {
namespace {

// Bytes written below which a second thread costs more than it copies.
constexpr int64_t kBytesPerThread = 1 << 20;

// First pass over the requests: all values are checked before anything is written.
struct ScannedDrafts {
    c10::SmallVector<int64_t, 64> starts;        // [B]
    c10::SmallVector<const int32_t*, 64> slots;  // [B]: those of a request's first draft; null when none is live
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
    TORCH_CHECK_VALUE(fault != kUnknownRequest, "draft_steps: req_pool_indices[", index, "] is ", request,
                      ", expected 0 <= index < ", p.max_requests, " (rows of the table)");
}

ScannedDrafts scan(const DraftStepsInputs& inputs, const DraftStepsParams& p) {
    const void* lengths = inputs.seq_lens.const_data_ptr();
    const bool from_table = drafts_from_table(p);
    const void* requests = from_table ? inputs.req_pool_indices->const_data_ptr() : nullptr;
    const int32_t* source =
        from_table ? inputs.table->const_data_ptr<int32_t>() : inputs.reservation->const_data_ptr<int32_t>();
    ScannedDrafts drafts;
    drafts.starts.reserve(p.num_requests);
    drafts.slots.reserve(p.num_requests);
    for (int64_t i = 0; i < p.num_requests; ++i) {
        const int64_t length = read(lengths, p.length_is_int64, i);
        const int64_t request = from_table ? read(requests, p.request_is_int64, i) : 0;
        check_request(i, length, request, p);
        const int64_t start = draft_start(length, kRowValid, p);
        const int64_t first = from_table ? draft_table_entry(request, start, p) : reserved_slots(i * p.topk, p);
        drafts.starts.push_back(start);
        drafts.slots.push_back(live_steps(start, p) > 0 ? source + first : nullptr);
    }
    return drafts;
}

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

// One entry of one step. slots: those of the entry's drafts, or null for a dummy.
void write_entry(int64_t step, int64_t entry, int64_t start, const int32_t* slots, const Tables& tables,
                 const Buffers& out, const DraftStepsParams& p) {
    const int64_t to = draft_output(step, entry, p);
    const int64_t position = draft_position(start, step, p);
    out.slots[to] = step < live_steps(start, p) ? draft_slot(slots[step]) : 0;
    out.positions[to] = position;
    out.kv_lens[to] = static_cast<int32_t>(draft_kv_len(position));
    const int64_t row_bytes = p.rope_dim * p.rope_bytes;
    std::memcpy(out.cos + to * row_bytes, tables.cos + position * row_bytes, row_bytes);
    std::memcpy(out.sin + to * row_bytes, tables.sin + position * row_bytes, row_bytes);
}

// Entries [begin, end) of every step.
void write_entries(int64_t begin, int64_t end, const ScannedDrafts& drafts, const Tables& tables, const Buffers& out,
                   const DraftStepsParams& p) {
    for (int64_t step = 0; step < p.num_steps; ++step) {
        int64_t request = draft_request(begin, p);
        int64_t draft = begin - request * p.topk;
        for (int64_t entry = begin; entry < end; ++entry) {
            const bool owned = request < p.num_requests;
            const int64_t start = owned ? drafts.starts[request] : p.max_context_len;
            const int32_t* slots =
                owned && drafts.slots[request] != nullptr ? drafts.slots[request] + reserved_slots(draft, p) : nullptr;
            write_entry(step, entry, start, slots, tables, out, p);
            if (++draft == p.topk) {
                draft = 0;
                ++request;
            }
        }
    }
}

void run(const DraftStepsParams& p, const DraftStepsInputs& inputs, const DraftStepsOutputs& out) {
    const ScannedDrafts drafts = scan(inputs, p);
    const Tables tables{static_cast<const char*>(inputs.rope_cos.const_data_ptr()),
                        static_cast<const char*>(inputs.rope_sin.const_data_ptr())};
    const Buffers buffers{out.slots.mutable_data_ptr<int32_t>(), out.positions.mutable_data_ptr<int64_t>(),
                          out.kv_lens.mutable_data_ptr<int32_t>(), static_cast<char*>(out.cos.mutable_data_ptr()),
                          static_cast<char*>(out.sin.mutable_data_ptr())};
    const int64_t entry_bytes = draft_bytes(p) / max_of<int64_t>(1, p.num_entries);
    at::parallel_for(0, p.num_entries, 1 + kBytesPerThread / entry_bytes,
                     [&](int64_t begin, int64_t end) { write_entries(begin, end, drafts, tables, buffers, p); });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_draft_steps<&run>(m); }

}  // namespace dsv4
