// What a step says of its tokens, where all rows bring equally many of a few and their pages lie in tables of pages
// (takes_uniform): positions, slots and RoPE rows, for which a row is looked at once.
#pragma once

#include "device/page_slots.h"
#include "device/rope_tile.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class UniformTokens {
  public:
    __aicore__ inline UniformTokens(StepRows& rows, const StepAddresses& memory)
        : rows_(rows),
          p_(rows.step()),
          memory_(memory),
          width_(static_cast<uint32_t>(p_.rows.width)),
          starts_(rows.starts()),
          requests_(rows.requests()),
          iota_(rows.iota()) {}

    __aicore__ inline void write() {
        const StagePart part = rows_.part(kStageTokens);
        // Shares meet at multiples of 32 bytes of int32.
        const BlockShare share = part.share(p_.rows.num_rows, uniform_share_rows(p_.rows.width));
        if (share.begin == share.end) {
            return;
        }
        rows_.next_stage();
        start();
        const int32_t end = static_cast<int32_t>(share.end);
        for (int32_t row = static_cast<int32_t>(share.begin); row < end; row += static_cast<int32_t>(tile_rows_)) {
            const uint32_t count = min_of<uint32_t>(tile_rows_, static_cast<uint32_t>(end - row));
            make_tile(row, count);
            store_tile(row, count);
        }
    }

  private:
    // A pool whose slots are asked for; in UB its lanes lie behind those of the pool before.
    struct Pool {
        GlobalTensor<int32_t> table;
        int64_t row_elems;
        int32_t number;
    };

    // Lanes of a row: its tokens, and nothing up to the 32-byte boundary.
    static constexpr uint32_t kLanes = static_cast<uint32_t>(kLaneElems);
    static constexpr uint32_t kPools = 4;
    static constexpr uint32_t kMostTileRows = 32;
    // int32 of UB that a row takes, beside RoPE rows: the areas of start().
    static constexpr uint32_t kRowWords = static_cast<uint32_t>(kUniformRowWords);
    static_assert(kRowWords == kLanes * (5 + 7 * kPools));

    __aicore__ inline void start() {
        rope_.start(p_, memory_, kStageTokenRope, 0);
        const uint32_t rope_words = width_ * rope_.row_words();
        tile_rows_ = min_of<uint32_t>(
            kMostTileRows, (static_cast<uint32_t>(kScratchElems) - rope_.row_words()) / (kRowWords + rope_words));
        const uint32_t lanes = tile_rows_ * kLanes;  // at most
        const LocalTensor<int32_t> scratch = rows_.scratch();
        positions_ = scratch;
        in_page_ = scratch[lanes];
        id_bytes_ = scratch[2 * lanes];
        wide_positions_ = scratch[3 * lanes];
        id_areas_ = scratch[5 * lanes];
        ids_ = scratch[(5 + kPools) * lanes];
        offsets_ = scratch[(5 + 2 * kPools) * lanes];
        slots_ = scratch[(5 + 3 * kPools) * lanes];
        has_ = scratch[(5 + 4 * kPools) * lanes];
        wide_slots_ = scratch[(5 + 5 * kPools) * lanes];
        rope_.place(scratch[kRowWords * tile_rows_], tile_rows_ * width_);
        const uint32_t wanted = slot_pools(p_, kStageTokens);
        for (int32_t pool = 0; wanted >> pool != 0; ++pool) {
            if ((wanted >> pool & 1) != 0) {
                const PoolAddress& a = p_.pools[pool];
                pools_[num_pools_++] = Pool{table_of_pages(a, memory_.tables[pool]), a.row_elems, pool};
                shift_ = a.page_shift;
            }
        }
    }

    __aicore__ inline void make_tile(int32_t row, uint32_t count) {
        lanes_ = count * kLanes;
        const int32_t lanes = static_cast<int32_t>(lanes_);
        order<AscendC::HardEvent::MTE3_V>();
        order<AscendC::HardEvent::MTE3_MTE2>();
        // Of padding, which has no pages.
        AscendC::Duplicate(positions_, int32_t{0}, lanes);
        if (num_pools_ != 0) {
            AscendC::Duplicate(in_page_, int32_t{0}, lanes);
            AscendC::Duplicate(id_areas_, int32_t{0}, static_cast<int32_t>(num_pools_ * lanes_));
        }
        order<AscendC::HardEvent::V_MTE2>();
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i < count; ++i) {
            add_row(row + static_cast<int32_t>(i), i);
        }
        order<AscendC::HardEvent::MTE2_V>();
        AscendC::PipeBarrier<PIPE_V>();
        if (wants(p_, kFieldPositions)) {
            AscendC::Cast(wide_positions_.template ReinterpretCast<int64_t>(), positions_,
                          AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(lanes));
        }
        if (num_pools_ != 0) {
            make_slots(lanes);
        }
        order<AscendC::HardEvent::V_MTE3>();
        order<AscendC::HardEvent::MTE2_MTE3>();
    }

    // Has MTE2 and V begin with row `row`, the i-th of the tile.
    __aicore__ inline void add_row(int32_t row, uint32_t i) {
        const int64_t request = requests_.GetValue(static_cast<uint32_t>(row));
        if (request == kNoRequest) {
            rope_.repeat_first_rows(i * width_, width_);
            return;
        }
        const int32_t start = starts_.GetValue(static_cast<uint32_t>(row));
        const int32_t width = static_cast<int32_t>(width_);
        if (wants(p_, kFieldPositions)) {
            AscendC::Adds(positions_[i * kLanes], iota_, start, width);
        }
        if (num_pools_ != 0) {
            const int32_t first = start >> shift_;
            const uint32_t pages = static_cast<uint32_t>(((start + width - 1) >> shift_) - first + 1);
            AscendC::Adds(in_page_[i * kLanes], iota_, start - (first << shift_), width);
            for (uint32_t k = 0; k < num_pools_; ++k) {
                const Pool& pool = pools_[k];
                load_padded(id_areas_[k * lanes_ + i * kLanes],
                            pool.table[static_cast<uint64_t>(request * pool.row_elems + first)], pages, 0, int32_t{0});
            }
        }
        rope_.fetch(start, width_, i * width_, int64_t{row} * width, rows_.errors());
    }

    // Of all pools at once, whose lanes follow each other.
    __aicore__ inline void make_slots(int32_t lanes) {
        // The page of a lane, counted from the row's first one, and where its id lies: in the row's area.
        AscendC::ShiftRight(id_bytes_, in_page_, shift_, lanes);
        AscendC::ShiftRight(has_, iota_, int32_t{3}, lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(offsets_, id_bytes_, shift_, lanes);
        AscendC::ShiftLeft(has_, has_, int32_t{3}, lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(offsets_, in_page_, offsets_, lanes);
        AscendC::Add(id_bytes_, id_bytes_, has_, lanes);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(id_bytes_, id_bytes_, int32_t{2}, lanes);
        for (uint32_t k = 1; k < num_pools_; ++k) {
            AscendC::Adds(offsets_[k * lanes_], offsets_, int32_t{0}, lanes);
        }
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t k = 0; k < num_pools_; ++k) {
            AscendC::Gather(ids_[k * lanes_], id_areas_, id_bytes_.template ReinterpretCast<uint32_t>(),
                            k * lanes_ * static_cast<uint32_t>(sizeof(int32_t)), static_cast<uint32_t>(lanes));
        }
        AscendC::PipeBarrier<PIPE_V>();
        slots_of_ids(slots_, ids_, offsets_, has_, shift_, static_cast<int32_t>(num_pools_ * lanes_));
        for (uint32_t k = 0; k < num_pools_; ++k) {
            finish_slots(pools_[k].number, k * lanes_, lanes);
        }
    }

    __aicore__ inline void finish_slots(int32_t pool, uint32_t area, int32_t lanes) const {
        const int32_t dummy = p_.dummy_slots[pool];
        if (dummy != 0) {
            AscendC::PipeBarrier<PIPE_V>();
            put_dummies(slots_[area], has_[area], dummy, lanes);
        }
        if (are_wide(p_, pool)) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Cast(wide_slots_[2 * area].template ReinterpretCast<int64_t>(), slots_[area],
                          AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(lanes));
        }
    }

    __aicore__ inline void store_tile(int32_t row, uint32_t count) {
        const int64_t entry = int64_t{row} * width_;
        if (wants(p_, kFieldPositions)) {
            store_lanes(kFieldPositions, entry, wide_positions_.template ReinterpretCast<int64_t>(), count);
        }
        for (uint32_t k = 0; k < num_pools_; ++k) {
            const int32_t field = kFieldSlots + pools_[k].number;
            const uint32_t area = k * lanes_;
            if (are_wide(p_, pools_[k].number)) {
                store_lanes(field, entry, wide_slots_[2 * area].template ReinterpretCast<int64_t>(), count);
            } else {
                store_lanes(field, entry, slots_[area], count);
            }
        }
        rope_.store(entry, count * width_);
    }

    template <typename T>
    __aicore__ inline void store_lanes(int32_t field, int64_t entry, const LocalTensor<T>& lanes, uint32_t count) {
        const GlobalTensor<T> out = global<T>(at(memory_.fields[field]), static_cast<uint64_t>(p_.rows.num_tokens));
        store_rows(out[static_cast<uint64_t>(entry)], lanes, count, width_, kLanes);
    }

    StepRows& rows_;
    const StepParams& p_;
    const StepAddresses& memory_;
    RopeTile rope_;
    Pool pools_[kPools];
    uint32_t num_pools_ = 0;
    uint32_t width_;
    int32_t shift_ = 0;  // log2 of the slots in a page, of all these pools
    uint32_t tile_rows_ = 0;
    uint32_t lanes_ = 0;  // of the tile, of each pool
    LocalTensor<int32_t> starts_, requests_, iota_;
    LocalTensor<int32_t> positions_, in_page_, id_bytes_, wide_positions_;
    // Of all pools: page ids as they are fetched, an area a row; and of each lane its page's id, its offset in the
    // page, its slot, and 1 where there is one.
    LocalTensor<int32_t> id_areas_, ids_, offsets_, slots_, has_, wide_slots_;
};

}  // namespace dsv4::kernel
