// A tile of draft steps: what the requests own is fetched by MTE2, and V turns it into slots and positions of all
// steps.
#pragma once

#include "device/errors.h"
#include "device/iota.h"
#include "device/pool_slots.h"
#include "device/row_values.h"
#include "ops/draft_steps/draft_steps_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// Where a tile comes from; 0 for what is not given. tables: by pool.
struct DraftSources {
    const uint64_t* tables;
    uint64_t reservation;
    uint64_t lengths;
    uint64_t requests;
};

// from_positions: instead of lengths, positions of the newest tokens are given.
template <bool from_positions>
class DraftTile {
  public:
    __aicore__ inline DraftTile(AscendC::TPipe* pipe, const DraftSources& from, GM_ADDR error_lanes,
                                const DraftStepsParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpDraftSteps) {
        reservation_ =
            global<int32_t>(at(from.reservation), static_cast<uint64_t>(reserved_slots(owned_entries(p), p)));
        stride_ = static_cast<uint32_t>(drafts_from_table(p) ? draft_pitch_elems(p) : p.num_steps);
        turn_rows_ = min_of<uint32_t>(kMaxRuns, kSlotTileLanes / stride_);
        make_buffers(pipe, from);
    }

    // Calls body(first_row, rows) for each tile of the block's share.
    template <typename Body>
    __aicore__ inline void every_tile(const Body& body) {
        const BlockShare share =
            block_share(draft_rows(p_), kLaneElems, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        const int64_t tile_rows = draft_tile_rows(p_);
        for (int64_t row = share.begin; row < share.end; row += tile_rows) {
            if (row != share.begin) {
                // What a tile is given starts after everything of the tile before.
                AscendC::PipeBarrier<PIPE_ALL>();
            }
            body(row, static_cast<uint32_t>(min_of<int64_t>(tile_rows, share.end - row)));
        }
        errors_.flush();
    }

    // Numbers that all tiles use, among them where the slots of each entry of a tile start, in bytes. Called once, when
    // all buffers are made.
    __aicore__ inline void prepare() {
        if (drafts_from_table(p_)) {
            fill_iota(iota_, kSlotTileLanes);
        }
        fill_iota(offsets_, kMaxDraftTileEntries);
        AscendC::Muls(offsets_, offsets_, static_cast<int32_t>(stride_ * sizeof(int32_t)),
                      static_cast<int32_t>(kMaxDraftTileEntries));
    }

    // Slots and positions of the entries of some rows. V may still be at work on the slots.
    __aicore__ inline void make(int64_t first_row, uint32_t rows) {
        first_entry_ = first_row * p_.topk;
        entries_ =
            static_cast<uint32_t>(min_of<int64_t>(static_cast<int64_t>(rows) * p_.topk, p_.num_entries - first_entry_));
        owned_ = static_cast<uint32_t>(max_of<int64_t>(0, min_of<int64_t>(rows, p_.num_requests - first_row)));
        fetch(first_row, owned_, lanes());
        make_steps(lanes());
    }

    __aicore__ inline int64_t first_entry() const { return first_entry_; }
    __aicore__ inline uint32_t entries() const { return entries_; }
    __aicore__ inline uint32_t owned() const { return owned_; }  // requests of the tile
    // Of an entry's place to that in the next step.
    __aicore__ inline uint32_t lanes() const { return round_up<uint32_t>(entries_, kUbBlockBytes / 4); }

    // [steps, lanes] of int32; those of `spare`, `live` and `source` are free. slots lie behind source.
    __aicore__ inline const LocalTensor<int32_t>& slots() const { return slots_; }
    __aicore__ inline const LocalTensor<int32_t>& positions() const { return positions_; }
    __aicore__ inline const LocalTensor<int32_t>& spare() const { return spare_; }
    __aicore__ inline const LocalTensor<int32_t>& live() const { return live_; }
    __aicore__ inline const LocalTensor<int32_t>& source() const { return source_tile_; }
    __aicore__ inline const LocalTensor<int64_t>& wide() const { return wide_; }  // free as well
    __aicore__ inline const LocalTensor<int32_t>& starts() const { return starts_; }
    __aicore__ inline int64_t latest_start() const { return latest_start_; }  // of the tile's entries

    // Of a request of the tile.
    __aicore__ inline int64_t length_of(uint32_t row) const {
        return from_positions ? length_behind(lengths_.get(row), p_) : lengths_.get(row);
    }

  private:
    __aicore__ inline void make_buffers(AscendC::TPipe* pipe, const DraftSources& from) {
        constexpr uint32_t entries = kMaxDraftTileEntries;
        pipe->InitBuffer(entry_buffer_, entries * kDraftEntryBytes);
        pipe->InitBuffer(tile_buffer_, kDraftTileElems * kDraftElemBytes);
        starts_ = entry_buffer_.Get<int32_t>();
        offsets_ = starts_[entries];
        lengths_.init(at(from.lengths), p_.num_requests, p_.length_is_int64, starts_[2 * entries]);
        requests_.init(at(from.requests), p_.num_requests, p_.request_is_int64, starts_[4 * entries]);
        source_tile_ = tile_buffer_.Get<int32_t>();
        slots_ = source_tile_[kDraftTileElems];
        positions_ = source_tile_[2 * kDraftTileElems];
        spare_ = source_tile_[3 * kDraftTileElems];
        live_ = source_tile_[4 * kDraftTileElems];
        wide_ = source_tile_[5 * kDraftTileElems].template ReinterpretCast<int64_t>();
        if (drafts_from_table(p_)) {
            pipe->InitBuffer(slot_buffer_, static_cast<uint32_t>(kDraftSlotBytes));
            iota_ = slot_buffer_.Get<int32_t>();
            found_ = PoolSlots(p_.pools, from.tables, iota_, iota_[kSlotTileLanes]);
        }
    }

    // Starts of all lanes, and the slots of the requests' drafts; what nobody owns has no slot.
    __aicore__ inline void fetch(int64_t first_row, uint32_t owned, uint32_t lanes) {
        AscendC::Duplicate(source_tile_, int32_t{0}, static_cast<int32_t>(lanes * stride_));
        order<HardEvent::V_MTE2>();
        if (owned > 0) {
            lengths_.load_chunk(first_row, owned);
            if (!drafts_from_table(p_)) {
                const int64_t slots = reserved_slots(first_row * p_.topk, p_);
                load_padded(source_tile_, reservation_[static_cast<uint64_t>(slots)],
                            static_cast<uint32_t>(reserved_slots(static_cast<int64_t>(owned) * p_.topk, p_)), 0,
                            int32_t{0});
            } else if (p_.has_requests != 0) {
                requests_.load_chunk(first_row, owned);
            }
            order<HardEvent::MTE2_S>();
        }
        uint32_t lane = 0;
        latest_start_ = 0;
        for (uint32_t row = 0; row < owned; ++row) {
            const int64_t start = admit(first_row + row, row);
            latest_start_ = max_of(latest_start_, start);
            for (int32_t draft = 0; draft < p_.topk; ++draft) {
                starts_.SetValue(lane++, static_cast<int32_t>(start));
            }
        }
        if (lane < lanes) {
            latest_start_ = p_.max_context_len;
        }
        for (; lane < lanes; ++lane) {
            starts_.SetValue(lane, static_cast<int32_t>(p_.max_context_len));
        }
        order<HardEvent::S_V>();
        order<HardEvent::MTE2_V>();
        if (drafts_from_table(p_)) {
            find_slots(owned);
        }
    }

    // Position of a request's first draft, whose run of slots is kept.
    __aicore__ inline int64_t admit(int64_t index, uint32_t row) {
        const int64_t length = length_of(row);
        const bool from_table = drafts_from_table(p_);
        const int64_t request = !from_table ? 0 : p_.has_requests != 0 ? requests_.get(row) : index;
        const int32_t fault = draft_fault(length, request, p_);
        if (fault != kRowValid) {
            errors_.report(fault, index, fault == kUnknownRequest ? request : lengths_.get(row));
        }
        const int64_t start = draft_start(length, fault, p_);
        if (from_table) {
            const int32_t live = static_cast<int32_t>(live_steps(start, p_));
            runs_[row] = UnitRun{live > 0 ? request : 0, start, p_.num_steps, 0, live, row % turn_rows_ * stride_};
        }
        return start;
    }

    // Slots of the tables, in turns of as many requests as a tile of PoolSlots takes. topk is 1.
    __aicore__ inline void find_slots(uint32_t owned) {
        for (uint32_t row = 0; row < owned; row += turn_rows_) {
            const uint32_t count = min_of<uint32_t>(turn_rows_, owned - row);
            found_.start(&runs_[row], count, count * stride_);
            const LocalTensor<int32_t> slots = found_.slots(p_.pool, p_.dummy_slot);
            AscendC::Adds(source_tile_[row * stride_], slots, int32_t{0}, static_cast<int32_t>(count * stride_));
            AscendC::PipeBarrier<PIPE_V>();
        }
    }

    // All steps of a tile. A draft is live below the context: min(max(context - position, 0), 1).
    __aicore__ inline void make_steps(uint32_t lanes) {
        const int32_t count = static_cast<int32_t>(lanes);
        const int32_t all = p_.num_steps * count;
        for (int32_t step = 0; step < p_.num_steps; ++step) {
            AscendC::Adds(positions_[step * lanes], starts_, step, count);
            AscendC::Gather(slots_[step * lanes], source_tile_, offsets_.template ReinterpretCast<uint32_t>(),
                            static_cast<uint32_t>(step * sizeof(int32_t)), lanes);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(live_, positions_, int32_t{-1}, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(live_, live_, static_cast<int32_t>(p_.max_context_len), all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Maxs(live_, live_, int32_t{0}, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(live_, live_, int32_t{1}, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(positions_, positions_, live_, all);
        put_dummies(all);
    }

    // slots_ where there is one and the draft is live, else the dummy. live_ is used up.
    __aicore__ inline void put_dummies(int32_t all) {
        if (!drafts_from_table(p_)) {
            // A reservation's slot of 0 or less is nobody's. spare_ is free.
            AscendC::Maxs(spare_, slots_, int32_t{0}, all);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mins(spare_, spare_, int32_t{1}, all);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(live_, live_, spare_, all);
        }
        AscendC::Adds(slots_, slots_, -p_.dummy_slot, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(slots_, slots_, live_, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(slots_, slots_, p_.dummy_slot, all);
    }

    const DraftStepsParams& p_;
    ErrorLane errors_;
    PoolSlots found_;
    UnitRun runs_[kMaxDraftTileEntries];  // of the requests of a tile
    TBuf<TPosition::VECCALC> entry_buffer_, tile_buffer_, slot_buffer_;
    RowValues lengths_, requests_;
    GlobalTensor<int32_t> reservation_;
    LocalTensor<int32_t> iota_;
    LocalTensor<int32_t> starts_, offsets_;                                // of the entries of a tile
    LocalTensor<int32_t> source_tile_, slots_, positions_, spare_, live_;  // of all their steps
    LocalTensor<int64_t> wide_;
    uint32_t stride_;     // elements of source_tile_ from one entry to the next
    uint32_t turn_rows_;  // requests whose slots are found at a time
    int64_t first_entry_ = 0;
    uint32_t entries_ = 0;
    uint32_t owned_ = 0;
    int64_t latest_start_ = 0;
};

}  // namespace dsv4::kernel
