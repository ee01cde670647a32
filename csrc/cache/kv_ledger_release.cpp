// The half of KVLedger that gives pages back.
#include <c10/util/Exception.h>

#include <limits>

#include "cache/kv_ledger.h"

namespace dsv4 {
namespace {

constexpr UnitRange kEverything{0, std::numeric_limits<int64_t>::max()};

int64_t pages_starting_in(UnitRange units, int32_t page_shift) {
    return pages_for(units.end, page_shift) - pages_for(units.begin, page_shift);
}

}  // namespace

Release KVLedger::evict(const IntList& requests, const IntList& committed_lens) {
    check_requests("evict", "reqs", requests);
    check_same_size("evict", "committed_lens", committed_lens, "reqs", requests);
    for (size_t i = 0; i < requests.size(); ++i) {
        check_live("evict", i, requests[i]);
        const int64_t allocated_len = states_[requests[i]].allocated_len;
        TORCH_CHECK_VALUE(committed_lens[i] >= 0 && committed_lens[i] <= allocated_len, "evict: committed_lens[", i,
                          "] is ", committed_lens[i], ", expected 0 <= length <= ", allocated_len,
                          ", the allocated length of request ", requests[i]);
    }
    Release release;
    begin_release();
    for (size_t i = 0; i < requests.size(); ++i) {
        RequestState& state = states_[requests[i]];
        bool remembered = false;
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            if (!is_windowed_pool(pool)) {
                continue;
            }
            const int64_t start = geometry_.kept_from(committed_lens[i], pool);
            if (start > state.evicted_before[pool]) {
                if (!remembered) {
                    remember_life(requests[i]);
                    remembered = true;
                }
                release_to_back(release, pool, requests[i], UnitRange{state.evicted_before[pool], start});
                state.evicted_before[pool] = start;
            }
        }
    }
    return release;
}

Release KVLedger::free(const IntList& requests) {
    check_requests("free", "reqs", requests);
    for (size_t i = 0; i < requests.size(); ++i) {
        check_live("free", i, requests[i]);
    }
    Release release;
    begin_release();
    for (const int64_t request : requests) {
        remember_life(request);
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            release_to_back(release, pool, request, kEverything);
        }
        states_[request].end();
    }
    return release;
}

Release KVLedger::restore_state(int64_t backup) {
    journal_.check_innermost("restore_state", backup);
    begin_release();
    undo_.journal = journal_;
    const std::vector<JournalEntry> entries = journal_.take_innermost();
    for (const JournalEntry& entry : entries) {
        remember_life(entry.request);
    }
    Release release;
    // What was shared goes first: only then the requests that took these pages are their last owners. A page whose owners
    // before the share have gone since was not taken since the backup, and is freed like any other.
    for (const JournalEntry& entry : entries) {
        if (entry.kind == JournalEntry::Kind::kShared && still_runs(entry)) {
            release_to_back(release, entry.pool, entry.request, entry.units);
        }
    }
    std::array<int64_t, kNumPools> pages = {};
    for (const JournalEntry& entry : entries) {
        pages[entry.pool] += count_restored_pages(entry);
    }
    std::array<int64_t, kNumPools> ring_position;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        ring_position[pool] = queues_[pool].push_front(pages[pool]);
    }
    for (const JournalEntry& entry : entries) {
        ring_position[entry.pool] = release_to_front(release, entry, ring_position[entry.pool]);
    }
    // Newest first, so that the oldest length, or the start of the request, has the last word.
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
        if (!still_runs(*entry)) {
            continue;
        }
        if (entry->kind == JournalEntry::Kind::kGrew) {
            states_[entry->request].allocated_len = entry->old_length;
            states_[entry->request].unfilled_swa = entry->units;
        } else if (entry->kind == JournalEntry::Kind::kStarted) {
            states_[entry->request].end();
        }
    }
    return release;
}

void KVLedger::begin_release() {
    ++num_releases_;
    undo_.queues = queues_;
    undo_.lives.clear();
    undo_.units.clear();
    undo_.journal.reset();
    owners_.begin();
}

void KVLedger::remember_life(int64_t request) { undo_.lives.emplace_back(request, states_[request]); }

void KVLedger::remember_units(int64_t request, int32_t pool) {
    int64_t& remembered_in = remembered_in_[request * kNumPools + pool];
    if (remembered_in != num_releases_) {
        remembered_in = num_releases_;
        undo_.units.push_back(
            UnitsBefore{request, pool, states_[request].owned[pool], states_[request].shared[pool]});
    }
}

void KVLedger::undo_release() {
    queues_ = undo_.queues;
    owners_.undo();
    for (const auto& [request, life] : undo_.lives) {
        static_cast<RequestLife&>(states_[request]) = life;
    }
    for (UnitsBefore& before : undo_.units) {
        states_[before.request].owned[before.pool] = std::move(before.owned);
        states_[before.request].shared[before.pool] = std::move(before.shared);
    }
    if (undo_.journal.has_value()) {
        journal_ = *undo_.journal;
    }
}

void KVLedger::discard_state(int64_t backup) {
    journal_.check_innermost("discard_state", backup);
    journal_.discard_innermost();
}

int64_t KVLedger::available_pages(int64_t pool) const {
    TORCH_CHECK_VALUE(pool >= 0 && pool < kNumPools && geometry_.pool_exists[pool], "available_pages: pool is ", pool,
                      ", expected a pool that exists");
    return queues_[pool].available();
}

int64_t KVLedger::allocated_len(int64_t request) const {
    check_running("allocated_len", "req", request);
    return states_[request].allocated_len;
}

// A page that starts before `units` stays with what lies before them, and so does its entry.
void KVLedger::append_release(Release& release, int32_t pool, int64_t request, UnitRange units,
                              int64_t ring_position, bool page_lives_on) const {
    const int64_t first_page = pages_for(units.begin, geometry_.page_shift[pool]);
    const int64_t end_page = pages_for(units.end, geometry_.page_shift[pool]);
    if (first_page < end_page) {
        release.segments.push_back(ReleaseSegment{pool,
                                                  static_cast<int32_t>(request),
                                                  static_cast<int32_t>(first_page),
                                                  static_cast<int32_t>(end_page),
                                                  static_cast<int32_t>(ring_position),
                                                  {},
                                                  0});
    }
    // Other owners of the page own the full page of the same tokens, which goes on being mapped.
    if (geometry_.maps_full_to_swa && pool == kSwa && !page_lives_on) {
        release.map_segments.push_back(MapSegment{static_cast<int32_t>(request), static_cast<int32_t>(units.begin),
                                                  static_cast<int32_t>(units.end), kMapNothing, {}, 0});
    }
}

// Takes the request away from the owners of those pages that start in `units`, all of which it owns. Calls
// visit(units, freed) for pieces of `units`, ascending: freed says whether the pages that start in a piece have no owner
// any more.
template <typename Visit>
void KVLedger::leave_pages(int32_t pool, int64_t request, UnitRange units, Visit&& visit) {
    const int32_t shift = geometry_.page_shift[pool];
    SharedPages& shared = states_[request].shared[pool];
    const int64_t end_page = pages_for(units.end, shift);
    int64_t begin = units.begin;
    bool freed = true;
    const auto go_on = [&](int64_t unit, bool freed_from_here) {
        if (freed != freed_from_here && begin < unit) {
            visit(UnitRange{begin, unit}, freed);
            begin = unit;
        }
        freed = freed_from_here;
    };
    int64_t seen_until = units.begin;
    for (auto page = shared.from(pages_for(units.begin, shift)); page != shared.end() && page->page < end_page; ++page) {
        const int64_t page_begin = page->page << shift;
        if (seen_until < page_begin) {
            go_on(seen_until, true);
        }
        go_on(page_begin, owners_.remove_owner(page->record) == 0);
        seen_until = min_of(page_begin + (int64_t{1} << shift), units.end);
    }
    if (seen_until < units.end) {
        go_on(seen_until, true);
    }
    visit(UnitRange{begin, units.end}, freed);
    shared.remove(pages_for(units.begin, shift), end_page);
}

void KVLedger::release_to_back(Release& release, int32_t pool, int64_t request, UnitRange range) {
    remember_units(request, pool);
    UnitRuns& owned = states_[request].owned[pool];
    owned.split(range, [&](UnitRange piece, bool is_owned) {
        if (is_owned) {
            leave_pages(pool, request, piece, [&](UnitRange units, bool freed) {
                const int64_t position =
                    freed ? queues_[pool].push_back(pages_starting_in(units, geometry_.page_shift[pool])) : kKeepPage;
                append_release(release, pool, request, units, position, !freed);
            });
        }
    });
    owned.remove(range);
}

// The request of the entry may have ended since, and another one may run in its row.
bool KVLedger::still_runs(const JournalEntry& entry) const {
    const RequestState& state = states_[entry.request];
    return state.live && state.incarnation == entry.incarnation;
}

int64_t KVLedger::count_restored_pages(const JournalEntry& entry) const {
    int64_t pages = 0;
    if (entry.kind == JournalEntry::Kind::kAllocated && still_runs(entry)) {
        states_[entry.request].owned[entry.pool].split(entry.units, [&](UnitRange piece, bool is_owned) {
            pages += is_owned ? pages_starting_in(piece, geometry_.page_shift[entry.pool]) : 0;
        });
    }
    return pages;
}

int64_t KVLedger::release_to_front(Release& release, const JournalEntry& entry, int64_t ring_position) {
    if (entry.kind != JournalEntry::Kind::kAllocated || !still_runs(entry)) {
        return ring_position;
    }
    remember_units(entry.request, entry.pool);
    UnitRuns& owned = states_[entry.request].owned[entry.pool];
    const int64_t capacity_pages = queues_[entry.pool].capacity();
    owned.split(entry.units, [&](UnitRange piece, bool is_owned) {
        if (is_owned) {
            leave_pages(entry.pool, entry.request, piece, [&](UnitRange units, bool freed) {
                TORCH_INTERNAL_ASSERT(freed, "a page outlives the backup after which it was taken");
                append_release(release, entry.pool, entry.request, units, ring_position, false);
                const int64_t pages = pages_starting_in(units, geometry_.page_shift[entry.pool]);
                ring_position = ring_entry(ring_position, pages, capacity_pages);
            });
        }
    });
    owned.remove(entry.units);
    return ring_position;
}

}  // namespace dsv4
