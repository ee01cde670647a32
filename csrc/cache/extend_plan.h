// Plans one allocation: which intervals lie in pages that there are and which take pages. Nothing is changed
// until the whole call is known to fit.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "cache/free_queue.h"
#include "cache/request_state.h"

namespace dsv4 {

// One row of an allocation, in raw tokens.
struct ExtendRow {
    int64_t index;  // position in the call, for messages
    int64_t request;
    int64_t prefix_len;
    int64_t seq_len;
};

// What an allocation may do.
struct ExtendRules {
    const char* op;
    bool tail_only;                // the state pools get slots from the window of seq_len on only
    bool may_start;                // a prefix of 0 starts a request
    int64_t swa_tail = kNoLength;  // the swa pool gets slots for the last swa_tail tokens only

    static constexpr int64_t kNoLength = -1;

    // The first token from whose position on the step fills the window.
    int64_t first_filled(int64_t prefix_len, int64_t seq_len) const;

    // Tokens of a request that a tail has left out, once a step of it is carried out: of several tails, also what lies
    // between.
    UnitRange unfilled_swa(UnitRange before, int64_t prefix_len, int64_t seq_len) const;
};

// Units that a request is given slots for.
struct GrownUnits {
    int32_t pool;
    int64_t request;
    UnitRange units;
};

class ExtendPlan {
  public:
    // num_rows: rows that will be added.
    ExtendPlan(const ExtendRules& rules, const CacheGeometry& geometry,
               const std::array<FreeQueue, kNumPools>& queues, const OwnerCounts& owners, size_t num_rows)
        : rules_(rules), geometry_(geometry), queues_(queues), owners_(owners) {
        for (auto& segments : segments_) {
            segments.reserve(num_rows);
        }
    }

    // Raises ValueError when the step of this row would read or write units that are gone, or write a shared page.
    void add_row(const ExtendRow& row, const RequestState& state);

    // Table order; -1 when every pool has the pages.
    int32_t first_lacking_pool() const;

    // Pool after pool, so that the outputs of neighbouring segments lie next to each other.
    std::vector<ReserveSegment> segments() const;
    int64_t pages_needed(int32_t pool) const { return pages_needed_[pool]; }
    std::vector<GrownUnits> take_grown() { return std::move(grown_); }
    std::vector<MapSegment> take_map_segments() { return std::move(map_segments_); }
    const std::array<int64_t, kNumPools>& num_slots() const { return num_slots_; }  // entries of each output
    const std::array<FreeQueue, kNumPools>& queues() const { return queues_; }      // once the pages are taken

  private:
    void add_pool(int32_t pool, const ExtendRow& row, const RequestState& state);
    int64_t first_written(int32_t pool, const ExtendRow& row, int64_t step_begin) const;
    void map(const ExtendRow& row);
    void check_columns(int32_t pool, const ExtendRow& row, const RequestState& state, UnitRange written) const;
    void check_not_shared(int32_t pool, const ExtendRow& row, const RequestState& state, UnitRange step) const;
    void check_window(int32_t pool, const ExtendRow& row, const RequestState& state, int64_t write_begin) const;
    void keep(int32_t pool, int64_t request, UnitRange units, const UnitRuns& owned);
    void report(int32_t pool, int64_t request, UnitRange units, int32_t source);
    void allocate(int32_t pool, int64_t request, UnitRange units);
    void append(int32_t pool, int64_t request, UnitRange units, int32_t source, int64_t ring_position);

    const ExtendRules& rules_;
    const CacheGeometry& geometry_;
    std::array<FreeQueue, kNumPools> queues_;
    const OwnerCounts& owners_;
    std::array<std::vector<ReserveSegment>, kNumPools> segments_;
    std::vector<GrownUnits> grown_;
    std::vector<MapSegment> map_segments_;
    std::array<int64_t, kNumPools> num_slots_ = {};
    std::array<int64_t, kNumPools> pages_needed_ = {};
};

}  // namespace dsv4
