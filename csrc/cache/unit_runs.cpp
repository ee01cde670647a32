#include "cache/unit_runs.h"

#include <algorithm>

namespace dsv4 {

size_t UnitRuns::first_ending_after(int64_t unit) const {
    const auto run = std::upper_bound(runs_.begin(), runs_.end(), unit,
                                      [](int64_t value, const UnitRange& candidate) { return value < candidate.end; });
    return static_cast<size_t>(run - runs_.begin());
}

bool UnitRuns::covers(UnitRange range) const {
    if (range.empty()) {
        return true;
    }
    const size_t i = first_ending_after(range.begin);
    return i < runs_.size() && runs_[i].begin <= range.begin && range.end <= runs_[i].end;
}

UnitRange UnitRuns::last_before(int64_t unit) const {
    const auto run = std::lower_bound(runs_.begin(), runs_.end(), unit,
                                      [](const UnitRange& candidate, int64_t value) { return candidate.begin < value; });
    return run == runs_.begin() ? UnitRange{0, 0} : *(run - 1);
}

void UnitRuns::add(UnitRange range) {
    if (range.empty()) {
        return;
    }
    const size_t next = first_ending_after(range.begin);
    const bool joins_previous = next > 0 && runs_[next - 1].end == range.begin;
    const bool joins_next = next < runs_.size() && runs_[next].begin == range.end;
    if (joins_previous && joins_next) {
        runs_[next - 1].end = runs_[next].end;
        runs_.erase(runs_.begin() + next);
    } else if (joins_previous) {
        runs_[next - 1].end = range.end;
    } else if (joins_next) {
        runs_[next].begin = range.begin;
    } else {
        runs_.insert(runs_.begin() + next, range);
    }
}

void UnitRuns::remove(UnitRange range) {
    if (range.empty()) {
        return;
    }
    const size_t first = first_ending_after(range.begin);
    size_t last = first;
    while (last < runs_.size() && runs_[last].begin < range.end) {
        ++last;
    }
    if (first == last) {
        return;
    }
    const UnitRange before{runs_[first].begin, std::min(runs_[first].end, range.begin)};
    const UnitRange after{std::max(runs_[last - 1].begin, range.end), runs_[last - 1].end};
    auto at = runs_.erase(runs_.begin() + first, runs_.begin() + last);
    if (!after.empty()) {
        at = runs_.insert(at, after);
    }
    if (!before.empty()) {
        runs_.insert(at, before);
    }
}

}  // namespace dsv4
