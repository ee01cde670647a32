// Which units of one request have slots in one pool, as sorted runs. Windows that move on cut runs at the front, chunks
// that keep only their tail leave gaps between them (docs/spec.md, invariants).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dsv4 {

struct UnitRange {
    int64_t begin;
    int64_t end;

    bool operator==(const UnitRange&) const = default;
    bool empty() const { return begin >= end; }
    bool overlaps(UnitRange other) const { return std::max(begin, other.begin) < std::min(end, other.end); }
};

// Pages [begin, end) of one request in one pool.
struct PageRange {
    int64_t begin;
    int64_t end;
};

class UnitRuns {
  public:
    bool covers(UnitRange range) const;

    // The first and the last run; empty when there are none.
    UnitRange first() const { return runs_.empty() ? UnitRange{0, 0} : runs_.front(); }
    UnitRange last() const { return runs_.empty() ? UnitRange{0, 0} : runs_.back(); }

    // The last run that starts before `unit`; empty when there is none.
    UnitRange last_before(int64_t unit) const;

    // `range` must be free of owned units. Joins the neighbours that it touches.
    void add(UnitRange range);

    // Takes `range` away, whether owned or not.
    void remove(UnitRange range);

    void clear() { runs_.clear(); }

    // Calls visit(piece, owned) for the maximal pieces of `range`, ascending.
    template <typename Visit>
    void split(UnitRange range, Visit&& visit) const {
        int64_t at = range.begin;
        for (size_t i = first_ending_after(at); at < range.end; ++i) {
            if (i == runs_.size() || runs_[i].begin >= range.end) {
                visit(UnitRange{at, range.end}, false);
                return;
            }
            if (at < runs_[i].begin) {
                visit(UnitRange{at, runs_[i].begin}, false);
                at = runs_[i].begin;
            }
            const int64_t end = runs_[i].end < range.end ? runs_[i].end : range.end;
            visit(UnitRange{at, end}, true);
            at = end;
        }
    }

  private:
    size_t first_ending_after(int64_t unit) const;

    std::vector<UnitRange> runs_;  // ascending, disjoint, never touching
};

}  // namespace dsv4
