// Where the slots of runs of units are made: UB of a tile, its runs, and how MTE2 fetches what the tables hold for
// them. Each run has an area of its own that starts at a 32-byte boundary.
#pragma once

#include "common/pool_address.h"
#include "common/step_launch.h"
#include "device/memory.h"
#include "device/pipes.h"

namespace dsv4::kernel {

// Consecutive units of one request: lane i of the area is unit `first` + i. Lanes outside [begin, end) have no slot;
// `first` may be negative, `first` + `begin` is not.
struct UnitRun {
    int64_t request;
    int64_t first;
    int32_t lanes;
    int32_t begin;
    int32_t end;
    uint32_t area;

    __aicore__ inline bool empty() const { return begin >= end; }
    __aicore__ inline bool whole() const { return begin == 0 && end == lanes; }
};

constexpr uint32_t kMaxRuns = 128;
constexpr uint32_t kSlotTileLanes = static_cast<uint32_t>(kMaxDeviceLanes);
constexpr uint32_t kScatteredLanes = 256;  // entries that are fetched at a time into a 32-byte block each

// UB of PoolSlots, in int32: tiles of the token pools, page ids of each or scattered entries, and room for int64
// entries, which V uses for its own values once they are narrowed.
constexpr uint32_t kTokenPools = 4;
constexpr uint32_t kPageIdElems = kSlotTileLanes + kMaxRuns * kLaneElems;
constexpr uint32_t kPoolSlotElems = kTokenPools * kSlotTileLanes + (kTokenPools + 2) * kPageIdElems;
static_assert(kPageIdElems >= kScatteredLanes * kLaneElems);
static_assert(2 * kPageIdElems >= 4 * kSlotTileLanes, "index, aux, result, spare");
static_assert(kPoolSlotElems <= kScratchElems);

class SlotTile {
  public:
    __aicore__ inline SlotTile() = default;
    // As for PoolSlots.
    __aicore__ inline SlotTile(const PoolAddress* pools, const uint64_t* tables, const LocalTensor<int32_t>& iota,
                               const LocalTensor<int32_t>& scratch)
        : pools_(pools), tables_(tables), iota_(iota), scratch_(scratch) {}

    __aicore__ inline void start(const UnitRun* runs, uint32_t num_runs, uint32_t used) {
        runs_ = runs;
        num_runs_ = num_runs;
        used_ = used;
    }

    __aicore__ inline const PoolAddress& address(int32_t pool) const { return pools_[pool]; }
    __aicore__ inline const LocalTensor<int32_t>& iota() const { return iota_; }
    __aicore__ inline uint32_t used() const { return used_; }
    __aicore__ inline int32_t lanes() const { return static_cast<int32_t>(used_); }

    // Slots as the pool gives them; in kinds that may lack slots 0 or less for none, less than 0 in a page ring.
    __aicore__ inline LocalTensor<int32_t> tile(int32_t pool) const { return scratch_[number(pool) * kSlotTileLanes]; }
    // Ids of the pages of a pool, or what an entry each is fetched into.
    __aicore__ inline LocalTensor<int32_t> ids(int32_t pool = kFull) const {
        return scratch_[kTokenPools * kSlotTileLanes + number(pool) * kPageIdElems];
    }
    __aicore__ inline LocalTensor<int32_t> wide() const {
        return scratch_[kTokenPools * (kSlotTileLanes + kPageIdElems)];
    }
    __aicore__ inline LocalTensor<int32_t> index() const { return wide(); }
    __aicore__ inline LocalTensor<int32_t> aux() const { return wide()[kSlotTileLanes]; }
    __aicore__ inline LocalTensor<int32_t> result() const { return wide()[2 * kSlotTileLanes]; }
    __aicore__ inline LocalTensor<int32_t> spare() const { return wide()[3 * kSlotTileLanes]; }

    __aicore__ inline GlobalTensor<int32_t> table(int32_t pool) const {
        const PoolAddress& a = pools_[pool];
        const uint64_t words = a.is_int64 != 0 ? 2 : 1;
        const uint64_t entries = a.kind == kMapped ? static_cast<uint64_t>(a.row_elems)
                                                   : static_cast<uint64_t>(a.row_elems) * (a.requests - 1) + a.columns;
        return global<int32_t>(at(tables_[pool]), entries * words);
    }

    template <typename Body>
    __aicore__ inline void each_run(const Body& body) const {
        for (uint32_t i = 0; i < num_runs_; ++i) {
            if (!runs_[i].empty()) {
                body(runs_[i]);
            }
        }
    }

    // What V did to the buffers comes before MTE2 fills them again.
    __aicore__ inline void begin_fetch() const { order<AscendC::HardEvent::V_MTE2>(); }
    __aicore__ inline void end_fetch() const { order<AscendC::HardEvent::MTE2_V>(); }

    // Every run, the empty ones too.
    template <typename Body>
    __aicore__ inline void every_run(const Body& body) const {
        for (uint32_t i = 0; i < num_runs_; ++i) {
            body(runs_[i]);
        }
    }

    // `count` entries from column `column` on, to the lanes `lane`.. of ids(), or of wide() for int64 entries. The
    // lanes before, down to a 32-byte boundary, become 0.
    __aicore__ inline void fetch_entries(int32_t pool, const GlobalTensor<int32_t>& table, int64_t entry, uint32_t lane,
                                         uint32_t count, const LocalTensor<int32_t>& narrow) const {
        const bool is_wide = pools_[pool].is_int64 != 0;
        const uint32_t words = is_wide ? 2 : 1;
        const uint32_t left = lane * words % static_cast<uint32_t>(kLaneElems);
        const LocalTensor<int32_t> target = (is_wide ? wide() : narrow)[lane * words - left];
        load_padded(target, table[static_cast<uint64_t>(entry) * words], count * words, left, int32_t{0});
    }

    // Calls fetch(first lane, lanes) for stretches of the tile and gathers what it has put into the 32-byte blocks of
    // ids(); the blocks of other lanes hold 0.
    template <typename Fetch>
    __aicore__ inline void scattered(int32_t pool, const Fetch& fetch) const {
        AscendC::Muls(aux(), iota_, static_cast<int32_t>(kUbBlockBytes), static_cast<int32_t>(kScatteredLanes));
        for (uint32_t lane = 0; lane < used_; lane += kScatteredLanes) {
            const uint32_t count = min_of<uint32_t>(kScatteredLanes, used_ - lane);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Duplicate(ids(), int32_t{0}, static_cast<int32_t>(count * kLaneElems));
            begin_fetch();
            fetch(lane, count);
            end_fetch();
            AscendC::Gather(tile(pool)[lane], ids(), aux().template ReinterpretCast<uint32_t>(), uint32_t{0}, count);
        }
        AscendC::PipeBarrier<PIPE_V>();
    }

  private:
    // Groups have no base, so that one tile does.
    __aicore__ inline static uint32_t number(int32_t pool) {
        return pool == kSwa ? 1 : pool == kC4State ? 2 : pool == kC128State ? 3 : 0;
    }

    const PoolAddress* pools_ = nullptr;
    const uint64_t* tables_ = nullptr;
    LocalTensor<int32_t> iota_, scratch_;
    const UnitRun* runs_ = nullptr;
    uint32_t num_runs_ = 0;
    uint32_t used_ = 0;
};

}  // namespace dsv4::kernel
