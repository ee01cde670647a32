// The half of KVLedger that starts requests on the pages of others.
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "cache/kv_ledger.h"

namespace dsv4 {
namespace {

// The longest length up to `length` whose step reads nothing from a windowed pool, because its window starts right there.
int64_t empty_window_at_most(int64_t length, int32_t pool, int64_t sliding_window, int32_t page_shift) {
    const int64_t page_units = int64_t{1} << page_shift;
    if (pool == kC4State || (pool == kSwa && sliding_window > 1)) {
        return 0;
    }
    const int64_t step = pool == kSwa ? page_units : std::max(page_units, kRatioC128);
    return length / step * step;
}

ShareSegment share_segment(int32_t pool, int64_t source, int64_t target, PageRange pages, int64_t ring_position,
                           int64_t copy) {
    return ShareSegment{pool, static_cast<int32_t>(target), static_cast<int32_t>(pages.begin),
                        static_cast<int32_t>(pages.end), static_cast<int32_t>(source),
                        static_cast<int32_t>(ring_position), static_cast<int32_t>(copy), 0};
}

}  // namespace

int64_t KVLedger::shareable_len(int64_t source, int64_t prefix_len) const {
    check_running("shareable_len", "source", source);
    TORCH_CHECK_VALUE(prefix_len >= 0 && prefix_len <= states_[source].allocated_len, "shareable_len: prefix_len is ",
                      prefix_len, ", expected 0 <= prefix_len <= ", states_[source].allocated_len,
                      ", the allocated length of request ", source);
    // What suits one pool may be too long for the next; lengths only go down.
    int64_t length = prefix_len;
    int64_t before = length + 1;
    while (length < before) {
        before = length;
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            if (is_windowed_pool(pool) && geometry_.pool_exists[pool]) {
                length = largest_start(pool, source, length);
            }
        }
    }
    return length;
}

int64_t KVLedger::largest_start(int32_t pool, int64_t source, int64_t length) const {
    const UnitRuns& owned = states_[source].owned[pool];
    const int64_t shortest = empty_window_at_most(length, pool, geometry_.sliding_window, geometry_.page_shift[pool]);
    while (length > shortest) {
        const UnitRange run = owned.last_before(length);
        const int64_t candidate = std::min(length, run.end);
        if (candidate > shortest && geometry_.kept_from(candidate, pool) >= run.begin) {
            if (!states_[source].reads_unfilled(pool, candidate, geometry_.sliding_window)) {
                return candidate;
            }
            length = states_[source].unfilled_swa.begin;
        } else {
            // A shorter length in this run needs no less of what lies before it.
            length = run.begin;
        }
    }
    return shortest;
}

KVLedger::Sharing KVLedger::share_prefix(const IntList& sources, const IntList& targets, const IntList& prefix_lens) {
    check_requests("share_prefix", "targets", targets);
    check_same_size("share_prefix", "sources", sources, "targets", targets);
    check_same_size("share_prefix", "prefix_lens", prefix_lens, "targets", targets);
    Sharing sharing;
    for (size_t i = 0; i < targets.size(); ++i) {
        check_share_row(i, sources[i], targets[i], prefix_lens[i]);
        sharing.starts.push_back(shareable_len(sources[i], prefix_lens[i]));
    }
    std::array<FreeQueue, kNumPools> queues = queues_;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (geometry_.pool_exists[pool]) {
            plan_whole_pages(pool, sources, targets, sharing);
            plan_copies(pool, sources, targets, sharing, queues[pool]);
        }
        if (queues[pool].available() < 0) {
            return Sharing{{}, {}, {}, 0, {}, pool, sharing.num_copies[pool]};
        }
    }
    pending_sharing_ = PendingSharing{sharing.segments, queues, sources, targets, sharing.starts};
    return sharing;
}

void KVLedger::check_running(const char* op, const char* name, int64_t request) const {
    TORCH_CHECK_VALUE(request >= 0 && request < geometry_.max_requests, op, ": ", name, " is ", request,
                      ", expected 0 <= request < ", geometry_.max_requests, " (max_requests)");
    TORCH_CHECK_VALUE(states_[request].live, op, ": ", name, " is ", request,
                      ", which was never started or has been freed, expected a running request");
}

void KVLedger::check_share_row(size_t index, int64_t source, int64_t target, int64_t prefix_len) const {
    check_running("share_prefix", ("sources[" + std::to_string(index) + "]").c_str(), source);
    TORCH_CHECK_VALUE(!states_[target].live, "share_prefix: targets[", index, "] is ", target,
                      ", which is running, expected a free row");
    TORCH_CHECK_VALUE(prefix_len >= 0 && prefix_len <= states_[source].allocated_len, "share_prefix: prefix_lens[",
                      index, "] is ", prefix_len, ", expected 0 <= prefix <= ", states_[source].allocated_len,
                      ", the allocated length of request ", source);
}

// Whole pages are shared. Targets of one source take turns, in the order of their requests.
void KVLedger::plan_whole_pages(int32_t pool, const IntList& sources, const IntList& targets, Sharing& sharing) const {
    std::vector<size_t> rows(targets.size());
    std::iota(rows.begin(), rows.end(), size_t{0});
    std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) { return sources[a] < sources[b]; });
    for (size_t first = 0, last = 0; first < rows.size(); first = last) {
        PageRange all = whole_pages(pool, sharing.starts[rows[first]]);
        for (last = first; last < rows.size() && sources[rows[last]] == sources[rows[first]]; ++last) {
            const PageRange shared = whole_pages(pool, sharing.starts[rows[last]]);
            all = PageRange{std::min(all.begin, shared.begin), std::max(all.end, shared.end)};
        }
        const int64_t step = last - first > 1 ? kShareTurnPages : std::max<int64_t>(all.end - all.begin, 1);
        for (int64_t begin = all.begin; begin < all.end; begin += step) {
            for (size_t i = first; i < last; ++i) {
                const PageRange shared = whole_pages(pool, sharing.starts[rows[i]]);
                const PageRange turn{std::max(begin, shared.begin), std::min(begin + step, shared.end)};
                if (turn.begin < turn.end) {
                    sharing.segments.push_back(
                        share_segment(pool, sources[rows[i]], targets[rows[i]], turn, kSharePages, 0));
                }
            }
        }
    }
}

// A target will write on in the page that its start lies in, and so, perhaps, will the source: that one is copied.
void KVLedger::plan_copies(int32_t pool, const IntList& sources, const IntList& targets, Sharing& sharing,
                           FreeQueue& queue) const {
    for (size_t i = 0; i < targets.size(); ++i) {
        const int64_t page = whole_pages(pool, sharing.starts[i]).end;
        const UnitRange last{page << geometry_.page_shift[pool], units_in(sharing.starts[i], pool)};
        if (last.empty()) {
            continue;
        }
        sharing.segments.push_back(share_segment(pool, sources[i], targets[i], PageRange{page, page + 1},
                                                 queue.take(1), sharing.total_copies++));
        ++sharing.num_copies[pool];
        if (geometry_.maps_full_to_swa && pool == kSwa) {
            sharing.map_segments.push_back(MapSegment{static_cast<int32_t>(targets[i]),
                                                      static_cast<int32_t>(last.begin), static_cast<int32_t>(last.end),
                                                      kMapTable, {}, 0});
        }
    }
}

// Pages that a start of `length` tokens needs, up to the last whole one.
PageRange KVLedger::whole_pages(int32_t pool, int64_t length) const {
    const int32_t shift = geometry_.page_shift[pool];
    const int64_t begin = is_windowed_pool(pool) ? geometry_.kept_from(length, pool) : 0;
    return PageRange{page_of(begin, shift), page_of(units_in(length, pool), shift)};
}

void KVLedger::commit_sharing() {
    using Kind = JournalEntry::Kind;
    const PendingSharing sharing = std::exchange(pending_sharing_, {});
    queues_ = sharing.queues;
    for (size_t i = 0; i < sharing.targets.size(); ++i) {
        start(sharing.targets[i], sharing.starts[i]);
        const UnitRange unfilled = states_[sharing.sources[i]].unfilled_swa;
        states_[sharing.targets[i]].unfilled_swa =
            UnitRange{unfilled.begin, std::min(unfilled.end, sharing.starts[i])};
    }
    for (const ShareSegment& segment : sharing.segments) {
        RequestState& state = states_[segment.request];
        const bool shares = segment.ring_position == kSharePages;
        const int32_t shift = geometry_.page_shift[segment.pool];
        const int64_t end = std::min(int64_t{segment.end} << shift, units_in(state.allocated_len, segment.pool));
        const UnitRange units{int64_t{segment.begin} << shift, end};
        state.owned[segment.pool].add(units);
        if (shares) {
            share_pages(segment);
        }
        if (journal_.recording()) {
            journal_.record(JournalEntry{shares ? Kind::kShared : Kind::kAllocated, segment.request,
                                         state.incarnation, 0, segment.pool, units});
        }
    }
}

void KVLedger::share_pages(const ShareSegment& segment) {
    SharedPages& of_source = states_[segment.source].shared[segment.pool];
    SharedPages& of_target = states_[segment.request].shared[segment.pool];
    for (int64_t page = segment.begin; page < segment.end; ++page) {
        const auto found = of_source.from(page);
        const bool was_shared = found != of_source.end() && found->page == page;
        const int32_t record = was_shared ? found->record : owners_.open();
        if (!was_shared) {
            of_source.add(SharedPage{page, record});
        }
        owners_.add_owner(record);
        of_target.add(SharedPage{page, record});
    }
}

}  // namespace dsv4
