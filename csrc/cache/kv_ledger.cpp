#include "cache/kv_ledger.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

#include "torch/paged_pools.h"
#include "torch/pool_addresses.h"

namespace dsv4 {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

}  // namespace

KVLedger::KVLedger(const IntList& num_pages, const IntList& page_sizes, const IntList& columns, int64_t sliding_window,
                   int64_t max_requests, int64_t max_context_len, bool maps_full_to_swa)
    : geometry_{{}, {}, {}, sliding_window, max_requests, max_context_len, maps_full_to_swa},
      states_(max_requests),
      named_in_(max_requests) {
    TORCH_CHECK_VALUE(num_pages.size() == kNumPools && page_sizes.size() == kNumPools && columns.size() == kNumPools,
                      "KVLedger: num_pages, page_sizes and columns have ", num_pages.size(), ", ", page_sizes.size(),
                      " and ", columns.size(), " entries, expected ", kNumPools);
    TORCH_CHECK_VALUE(max_context_len <= kInt32Max, "KVLedger: max_context_len is ", max_context_len,
                      ", expected at most ", kInt32Max);
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        geometry_.pool_exists[pool] = num_pages[pool] >= 0;
        geometry_.columns[pool] = columns[pool];
        if (geometry_.pool_exists[pool]) {
            geometry_.page_shift[pool] = check::page_shift("KVLedger", kPoolNames[pool], page_sizes[pool]);
        }
        queues_[pool] = FreeQueue(std::max<int64_t>(0, num_pages[pool]));
    }
    TORCH_CHECK_VALUE(!maps_full_to_swa || (geometry_.pool_exists[kFull] && geometry_.pool_exists[kSwa]),
                      "KVLedger: num_pages is ", num_pages,
                      ", expected pools full and swa, because maps_full_to_swa is true");
}

KVLedger::Extension KVLedger::alloc_extend(const IntList& requests, const IntList& prefix_lens,
                                           const IntList& seq_lens, std::optional<int64_t> swa_tail) {
    TORCH_CHECK_VALUE(swa_tail.value_or(1) >= 1, "alloc_extend: swa_tail is ", swa_tail.value_or(1),
                      ", expected at least 1");
    const ExtendRules rules{"alloc_extend", true, true, swa_tail.value_or(ExtendRules::kNoLength)};
    return extend(rules, requests, prefix_lens, seq_lens);
}

KVLedger::Extension KVLedger::reserve_extend(const IntList& requests, const IntList& prefix_lens,
                                             const IntList& seq_lens) {
    return extend(ExtendRules{"reserve_extend", false, false}, requests, prefix_lens, seq_lens);
}

KVLedger::Extension KVLedger::alloc_decode(const IntList& requests, const IntList& seq_lens) {
    IntList prefix_lens(seq_lens.size());
    for (size_t row = 0; row < seq_lens.size(); ++row) {
        TORCH_CHECK_VALUE(seq_lens[row] >= 1, "alloc_decode: seq_lens[", row, "] is ", seq_lens[row],
                          ", expected at least 1 (the new token counts)");
        prefix_lens[row] = seq_lens[row] - 1;
    }
    check_same_size("alloc_decode", "seq_lens", seq_lens, "reqs", requests);
    return extend(ExtendRules{"alloc_decode", false, false}, requests, prefix_lens, seq_lens);
}

KVLedger::Extension KVLedger::extend(const ExtendRules& rules, const IntList& requests, const IntList& prefix_lens,
                                     const IntList& seq_lens) {
    check_requests(rules.op, "reqs", requests);
    check_same_size(rules.op, "prefix_lens", prefix_lens, "reqs", requests);
    check_same_size(rules.op, "seq_lens", seq_lens, "reqs", requests);
    ExtendPlan plan(rules, geometry_, queues_, owners_, requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
        const ExtendRow row{static_cast<int64_t>(i), requests[i], prefix_lens[i], seq_lens[i]};
        check_extend_row(rules, row);
        plan.add_row(row, states_[row.request]);
    }
    const int32_t lacking = plan.first_lacking_pool();
    if (lacking >= 0) {
        return Extension{{}, {}, {}, lacking, plan.pages_needed(lacking)};
    }
    pending_ = PendingExtension{plan.take_grown(), plan.queues(), rules, requests, prefix_lens, seq_lens};
    return Extension{plan.segments(), plan.take_map_segments(), plan.num_slots(), -1, 0};
}

void KVLedger::check_requests(const char* op, const char* name, const IntList& requests) {
    ++num_calls_;
    for (size_t i = 0; i < requests.size(); ++i) {
        const int64_t request = requests[i];
        TORCH_CHECK_VALUE(request >= 0 && request < geometry_.max_requests, op, ": ", name, "[", i, "] is ", request,
                          ", expected 0 <= request < ", geometry_.max_requests, " (max_requests)");
        TORCH_CHECK_VALUE(named_in_[request] != num_calls_, op, ": ", name, "[", i, "] is ", request,
                          " again, expected every request once");
        named_in_[request] = num_calls_;
    }
}

void KVLedger::check_same_size(const char* op, const char* name, const IntList& values, const char* like,
                               const IntList& requests) const {
    TORCH_CHECK_VALUE(values.size() == requests.size(), op, ": ", name, " has ", values.size(), " entries, expected ",
                      requests.size(), " like ", like);
}

void KVLedger::check_live(const char* op, size_t index, int64_t request) const {
    TORCH_CHECK_VALUE(states_[request].live, op, ": reqs[", index, "] is ", request,
                      ", which was never started or has been freed, expected a running request");
}

void KVLedger::check_extend_row(const ExtendRules& rules, const ExtendRow& row) const {
    TORCH_CHECK_VALUE(row.prefix_len >= 0, rules.op, ": prefix_lens[", row.index, "] is ", row.prefix_len,
                      ", expected at least 0");
    TORCH_CHECK_VALUE(row.seq_len >= row.prefix_len, rules.op, ": seq_lens[", row.index, "] is ", row.seq_len,
                      ", expected at least prefix_lens[", row.index, "] = ", row.prefix_len);
    TORCH_CHECK_VALUE(row.seq_len <= geometry_.max_context_len, rules.op, ": seq_lens[", row.index, "] is ",
                      row.seq_len, ", expected at most ", geometry_.max_context_len, " (max_context_len)");
    if (!rules.may_start || row.prefix_len > 0) {
        check_live(rules.op, row.index, row.request);
    }
    TORCH_CHECK_VALUE(!rules.may_start || row.prefix_len > 0 || states_[row.request].allocated_len == 0, rules.op,
                      ": prefix_lens[", row.index, "] is 0 for request ", row.request, ", which is running with ",
                      states_[row.request].allocated_len,
                      " allocated tokens, expected free() of the old request before a new one starts in its row");
    TORCH_CHECK_VALUE(row.prefix_len <= states_[row.request].allocated_len, rules.op, ": prefix_lens[", row.index,
                      "] is ", row.prefix_len, ", expected at most ", states_[row.request].allocated_len,
                      ", the allocated length of request ", row.request);
}

void KVLedger::start(int64_t request, int64_t length) {
    RequestState& state = states_[request];
    state.live = true;
    state.incarnation = ++num_started_;
    state.allocated_len = length;
    if (journal_.recording()) {
        journal_.record(JournalEntry{JournalEntry::Kind::kStarted, request, state.incarnation, 0, 0, {}});
    }
}

void KVLedger::commit_extension() {
    using Kind = JournalEntry::Kind;
    const PendingExtension extension = std::exchange(pending_, {});
    queues_ = extension.queues;
    for (size_t i = 0; i < extension.requests.size(); ++i) {
        const int64_t request = extension.requests[i];
        const int64_t seq_len = extension.seq_lens[i];
        RequestState& state = states_[request];
        if (!state.live) {
            start(request, 0);
        }
        const UnitRange unfilled =
            extension.rules.unfilled_swa(state.unfilled_swa, extension.prefix_lens[i], seq_len);
        if (seq_len > state.allocated_len || unfilled != state.unfilled_swa) {
            if (journal_.recording()) {
                journal_.record(JournalEntry{Kind::kGrew, request, state.incarnation, state.allocated_len, kSwa,
                                             state.unfilled_swa});
            }
            state.allocated_len = std::max(seq_len, state.allocated_len);
            state.unfilled_swa = unfilled;
        }
    }
    for (const GrownUnits& grown : extension.grown) {
        RequestState& state = states_[grown.request];
        state.owned[grown.pool].add(grown.units);
        if (journal_.recording()) {
            journal_.record(
                JournalEntry{Kind::kAllocated, grown.request, state.incarnation, 0, grown.pool, grown.units});
        }
    }
}

}  // namespace dsv4
