#include "cache/extend_plan.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "torch/pool_addresses.h"

namespace dsv4 {

int64_t ExtendRules::first_filled(int64_t prefix_len, int64_t seq_len) const {
    return swa_tail == kNoLength ? prefix_len : std::max(prefix_len, seq_len - swa_tail);
}

UnitRange ExtendRules::unfilled_swa(UnitRange before, int64_t prefix_len, int64_t seq_len) const {
    const UnitRange left_out{prefix_len, first_filled(prefix_len, seq_len)};
    if (!left_out.empty()) {
        return before.empty() ? left_out
                              : UnitRange{std::min(before.begin, left_out.begin), std::max(before.end, left_out.end)};
    }
    if (prefix_len <= before.begin) {
        return UnitRange{std::max(before.begin, seq_len), before.end};
    }
    // One range it stays: what is filled in its middle counts as left out.
    return seq_len < before.end ? before : UnitRange{before.begin, std::min(before.end, prefix_len)};
}

void ExtendPlan::add_row(const ExtendRow& row, const RequestState& state) {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (geometry_.pool_exists[pool]) {
            add_pool(pool, row, state);
        }
    }
    if (geometry_.maps_full_to_swa) {
        map(row);
    }
}

std::vector<ReserveSegment> ExtendPlan::segments() const {
    std::vector<ReserveSegment> all;
    for (const auto& segments : segments_) {
        all.insert(all.end(), segments.begin(), segments.end());
    }
    return all;
}

int32_t ExtendPlan::first_lacking_pool() const {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (queues_[pool].available() < 0) {
            return pool;
        }
    }
    return -1;
}

void ExtendPlan::add_pool(int32_t pool, const ExtendRow& row, const RequestState& state) {
    const UnitRange step{units_in(row.prefix_len, pool), units_in(row.seq_len, pool)};
    if (step.empty()) {
        return;
    }
    check_not_shared(pool, row, state, step);
    const int64_t write_begin = first_written(pool, row, step.begin);
    if (is_windowed_pool(pool)) {
        check_window(pool, row, state, write_begin);
        check_columns(pool, row, state, UnitRange{write_begin, step.end});
    }
    keep(pool, row.request, UnitRange{step.begin, write_begin}, state.owned[pool]);
    state.owned[pool].split(UnitRange{write_begin, step.end}, [&](UnitRange piece, bool owned) {
        if (owned) {
            report(pool, row.request, piece, kKeepSlots);
        } else {
            allocate(pool, row.request, piece);
        }
    });
}

// First unit from step_begin on that the allocation gives a slot. Pages are taken whole: page tables look for a page's
// number at its first unit.
int64_t ExtendPlan::first_written(int32_t pool, const ExtendRow& row, int64_t step_begin) const {
    if (rules_.tail_only && is_state_pool(pool)) {
        return std::max(step_begin, geometry_.kept_from(row.seq_len, pool));
    }
    if (pool == kSwa) {
        const int64_t filled = rules_.first_filled(row.prefix_len, row.seq_len);
        return std::max(step_begin, page_start(filled, geometry_.page_shift[pool]));
    }
    return step_begin;
}

void ExtendPlan::map(const ExtendRow& row) {
    const int64_t begin = rules_.first_filled(row.prefix_len, row.seq_len);
    if (begin < row.seq_len) {
        map_segments_.push_back(MapSegment{static_cast<int32_t>(row.request), static_cast<int32_t>(begin),
                                           static_cast<int32_t>(row.seq_len), kMapTable, {}, 0});
    }
}

// A step may write all its units, also those that have slots already.
void ExtendPlan::check_not_shared(int32_t pool, const ExtendRow& row, const RequestState& state,
                                  UnitRange step) const {
    int64_t last_shared_page = -1;
    const SharedPages& shared = state.shared[pool];
    for (auto page = shared.from(page_of(step.begin, geometry_.page_shift[pool])); page != shared.end(); ++page) {
        if (owners_.owners(page->record) > 1) {
            last_shared_page = page->page;
        }
    }
    const int64_t first_writable = (last_shared_page + 1) << geometry_.page_shift[pool];
    TORCH_CHECK_VALUE(last_shared_page < 0, rules_.op, ": prefix_lens[", row.index, "] is ", row.prefix_len,
                      " for request ", row.request, ", whose step writes page ", last_shared_page, " of pool ",
                      kPoolNames[pool], ", which other requests share, expected at least ",
                      first_writable * tokens_per_unit(pool));
}

void ExtendPlan::check_window(int32_t pool, const ExtendRow& row, const RequestState& state,
                              int64_t write_begin) const {
    const UnitRange read{geometry_.kept_from(row.prefix_len, pool), row.prefix_len};
    if (read.empty() && write_begin == row.seq_len) {
        return;
    }
    const int64_t needed_from = read.empty() ? write_begin : read.begin;
    TORCH_CHECK_VALUE(needed_from >= state.evicted_before[pool], rules_.op, ": prefix_lens[", row.index, "] is ",
                      row.prefix_len, " for request ", row.request, ", whose step needs pool ", kPoolNames[pool],
                      " from position ", needed_from, ", expected a step that needs nothing before ",
                      state.evicted_before[pool], " (evicted)");
    TORCH_CHECK_VALUE(state.owned[pool].covers(read), rules_.op, ": prefix_lens[", row.index, "] is ", row.prefix_len,
                      " for request ", row.request, ", whose step reads positions [", read.begin, ", ", read.end,
                      ") of pool ", kPoolNames[pool], ", expected a prefix whose window was allocated throughout");
    TORCH_CHECK_VALUE(!state.reads_unfilled(pool, row.prefix_len, geometry_.sliding_window), rules_.op,
                      ": prefix_lens[", row.index, "] is ", row.prefix_len, " for request ", row.request,
                      ", whose window [", window_first_needed(row.prefix_len, pool, geometry_.sliding_window), ", ",
                      row.prefix_len, ") reaches tokens that a swa_tail has left out, expected none before ",
                      state.unfilled_swa.end);
}

// All pages that the request has afterwards lie within [oldest, end), so that each of them has a column of its own.
void ExtendPlan::check_columns(int32_t pool, const ExtendRow& row, const RequestState& state, UnitRange written) const {
    if (written.empty()) {
        return;  // the step takes no page, and those that there are have a column each
    }
    const int32_t shift = geometry_.page_shift[pool];
    const UnitRuns& owned = state.owned[pool];
    int64_t oldest = page_of(written.begin, shift);
    if (!owned.first().empty()) {
        oldest = std::min(oldest, page_of(owned.first().begin, shift));
    }
    const int64_t end = pages_for(std::max(written.end, owned.last().end), shift);
    TORCH_CHECK_VALUE(end - oldest <= geometry_.columns[pool], rules_.op, ": seq_lens[", row.index, "] is ",
                      row.seq_len, " for request ", row.request, ", which then has pages [", oldest, ", ", end,
                      ") of pool ", kPoolNames[pool], ", expected at most ", geometry_.columns[pool],
                      ", one for each column of its table (evict first, or take shorter steps)");
}

// What the step does not give slots to. Pages are whole: what lies behind a run in its last page has slots all the
// same.
void ExtendPlan::keep(int32_t pool, int64_t request, UnitRange units, const UnitRuns& owned) {
    owned.split(units, [&](UnitRange piece, bool is_owned) {
        const int64_t page_end = page_start_from(owned.last_before(piece.begin).end, geometry_.page_shift[pool]);
        const int64_t kept_end = is_owned ? piece.end : std::clamp(page_end, piece.begin, piece.end);
        report(pool, request, UnitRange{piece.begin, kept_end}, kKeepSlots);
        report(pool, request, UnitRange{kept_end, piece.end}, kNoSlots);
    });
}

void ExtendPlan::report(int32_t pool, int64_t request, UnitRange units, int32_t source) {
    if (units.empty()) {
        return;
    }
    // Consecutive units of one pool and row are one segment, wherever the boundary of a run or window falls.
    if (!segments_[pool].empty()) {
        ReserveSegment& last = segments_[pool].back();
        if (last.source == source && last.request == request && last.end == units.begin) {
            last.end = static_cast<int32_t>(units.end);
            num_slots_[pool] += units.end - units.begin;
            return;
        }
    }
    append(pool, request, units, source, 0);
}

void ExtendPlan::allocate(int32_t pool, int64_t request, UnitRange units) {
    grown_.push_back(GrownUnits{pool, request, units});
    const int32_t shift = geometry_.page_shift[pool];
    const int64_t first_page = std::min(page_start_from(units.begin, shift), units.end);
    // The request has the page in which they begin.
    report(pool, request, UnitRange{units.begin, first_page}, kKeepSlots);
    if (first_page < units.end) {
        const int64_t pages = pages_for(units.end - first_page, shift);
        pages_needed_[pool] += pages;
        append(pool, request, UnitRange{first_page, units.end}, kTakePages, queues_[pool].take(pages));
    }
}

void ExtendPlan::append(int32_t pool, int64_t request, UnitRange units, int32_t source, int64_t ring_position) {
    segments_[pool].push_back(ReserveSegment{pool, static_cast<int32_t>(request), static_cast<int32_t>(units.begin),
                                       static_cast<int32_t>(units.end), source, static_cast<int32_t>(ring_position),
                                       static_cast<int32_t>(num_slots_[pool]), 0});
    num_slots_[pool] += units.end - units.begin;
}

}  // namespace dsv4
