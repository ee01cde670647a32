#include "device/errors.h"
#include "device/iota.h"
#include "device/pool_slots.h"
#include "device/row_values.h"
#include "kernel_operator.h"
#include "ops/draft_steps/draft_rope.h"
#include "ops/draft_steps/draft_steps_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// Each block takes a share of the requests, behind which dummies follow in groups of topk, in tiles. All steps of a
// tile are made at once: MTE2 fetches what the requests own, V turns it into steps, MTE3 stores a row a step.
template <typename bits_t>
class DraftStepsKernel {
  public:
    __aicore__ inline DraftStepsKernel(AscendC::TPipe* pipe, const DraftStepsAddresses& memory, GM_ADDR error_lanes,
                                       const DraftStepsParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpDraftSteps), rope_(pipe, memory, p) {
        const uint64_t outputs = static_cast<uint64_t>(draft_output(p.num_steps, 0, p));
        slots_out_ = global<int32_t>(at(memory.slots), outputs);
        positions_out_ = global<int64_t>(at(memory.positions), outputs);
        kv_lens_out_ = global<int32_t>(at(memory.kv_lens), outputs);
        reservation_ =
            global<int32_t>(at(memory.reservation), static_cast<uint64_t>(reserved_slots(owned_entries(p), p)));
        stride_ = static_cast<uint32_t>(drafts_from_table(p) ? draft_pitch_elems(p) : p.num_steps);
        turn_rows_ = min_of<uint32_t>(kMaxRuns, kSlotTileLanes / stride_);
        make_buffers(pipe, memory);
    }

    __aicore__ inline void run() {
        const BlockShare share =
            block_share(draft_rows(p_), kLaneElems, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        const int64_t tile_rows = draft_tile_rows(p_);
        prepare();
        for (int64_t row = share.begin; row < share.end; row += tile_rows) {
            if (row != share.begin) {
                // What a tile is given starts after everything of the tile before.
                AscendC::PipeBarrier<PIPE_ALL>();
            }
            tile(row, static_cast<uint32_t>(min_of<int64_t>(tile_rows, share.end - row)));
        }
        errors_.flush();
    }

  private:
    __aicore__ inline void make_buffers(AscendC::TPipe* pipe, const DraftStepsAddresses& memory) {
        constexpr uint32_t entries = kMaxDraftTileEntries;
        pipe->InitBuffer(entry_buffer_, entries * kDraftEntryBytes);
        pipe->InitBuffer(tile_buffer_, kDraftTileElems * kDraftElemBytes);
        starts_ = entry_buffer_.Get<int32_t>();
        offsets_ = starts_[entries];
        lengths_.init(at(memory.lengths), p_.num_requests, p_.length_is_int64, starts_[2 * entries]);
        requests_.init(at(memory.requests), p_.num_requests, p_.request_is_int64, starts_[4 * entries]);
        source_tile_ = tile_buffer_.Get<int32_t>();
        slots_ = source_tile_[kDraftTileElems];
        positions_ = source_tile_[2 * kDraftTileElems];
        kv_lens_ = source_tile_[3 * kDraftTileElems];
        live_ = source_tile_[4 * kDraftTileElems];
        wide_ = source_tile_[5 * kDraftTileElems].template ReinterpretCast<int64_t>();
        if (drafts_from_table(p_)) {
            pipe->InitBuffer(slot_buffer_, static_cast<uint32_t>(kDraftSlotBytes));
            const LocalTensor<int32_t> iota = slot_buffer_.Get<int32_t>();
            fill_iota(iota, kSlotTileLanes);
            found_ = PoolSlots(p_.pools, memory.tables, iota, iota[kSlotTileLanes]);
        }
    }

    // Where the slots of each entry of a tile start, in bytes; and the RoPE rows of dummies.
    __aicore__ inline void prepare() {
        fill_iota(offsets_, kMaxDraftTileEntries);
        AscendC::Muls(offsets_, offsets_, static_cast<int32_t>(stride_ * sizeof(int32_t)),
                      static_cast<int32_t>(kMaxDraftTileEntries));
        rope_.load_dummies();
    }

    __aicore__ inline void tile(int64_t first_row, uint32_t rows) {
        const int64_t first_entry = first_row * p_.topk;
        const uint32_t entries =
            static_cast<uint32_t>(min_of<int64_t>(static_cast<int64_t>(rows) * p_.topk, p_.num_entries - first_entry));
        const uint32_t lanes = round_up<uint32_t>(entries, kUbBlockBytes / 4);
        const uint32_t owned =
            static_cast<uint32_t>(max_of<int64_t>(0, min_of<int64_t>(rows, p_.num_requests - first_row)));
        fetch(first_row, owned, lanes);
        make_steps(lanes);
        store_steps(first_entry, entries, lanes);
        rope_.write(first_row, rows, starts_, latest_start_);
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
        const int64_t length = lengths_.get(row);
        const bool from_table = drafts_from_table(p_);
        const int64_t request = !from_table ? 0 : p_.has_requests != 0 ? requests_.get(row) : index;
        const int32_t fault = draft_fault(length, request, p_);
        if (fault != kRowValid) {
            errors_.report(fault, index, fault == kUnknownRequest ? request : length);
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

    // All steps of a tile, [steps, lanes]. A draft is live below the context: min(max(context - position, 0), 1).
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
        AscendC::Adds(kv_lens_, positions_, static_cast<int32_t>(draft_kv_len(0)), all);
        AscendC::Cast(wide_, positions_, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(all));
        order<HardEvent::V_MTE3>();
    }

    // slots_ where there is one and the draft is live, else the dummy. live_ is used up.
    __aicore__ inline void put_dummies(int32_t all) {
        if (!drafts_from_table(p_)) {
            // A reservation's slot of 0 or less is nobody's. kv_lens_ is not made yet.
            AscendC::Maxs(kv_lens_, slots_, int32_t{0}, all);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mins(kv_lens_, kv_lens_, int32_t{1}, all);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(live_, live_, kv_lens_, all);
        }
        AscendC::Adds(slots_, slots_, -p_.dummy_slot, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(slots_, slots_, live_, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(slots_, slots_, p_.dummy_slot, all);
    }

    __aicore__ inline void store_steps(int64_t first_entry, uint32_t entries, uint32_t lanes) {
        const uint32_t steps = static_cast<uint32_t>(p_.num_steps);
        const uint64_t to = static_cast<uint64_t>(draft_output(0, first_entry, p_));
        store_strided_rows(slots_out_[to], slots_, steps, entries, p_.num_entries, lanes);
        store_strided_rows(positions_out_[to], wide_, steps, entries, p_.num_entries, lanes);
        store_strided_rows(kv_lens_out_[to], kv_lens_, steps, entries, p_.num_entries, lanes);
    }

    const DraftStepsParams& p_;
    ErrorLane errors_;
    DraftRope<bits_t> rope_;
    PoolSlots found_;
    UnitRun runs_[kMaxDraftTileEntries];  // of the requests of a tile
    TBuf<TPosition::VECCALC> entry_buffer_, tile_buffer_, slot_buffer_;
    RowValues lengths_, requests_;
    GlobalTensor<int32_t> reservation_, slots_out_, kv_lens_out_;
    GlobalTensor<int64_t> positions_out_;
    LocalTensor<int32_t> starts_, offsets_;                                  // of the entries of a tile
    LocalTensor<int32_t> source_tile_, slots_, positions_, kv_lens_, live_;  // of all their steps
    LocalTensor<int64_t> wide_;
    uint32_t stride_;       // elements of source_tile_ from one entry to the next
    uint32_t turn_rows_;    // requests whose slots are found at a time
    int64_t latest_start_;  // of the tile's entries
};

template <typename bits_t>
__aicore__ inline void run_draft_steps(const DraftStepsAddresses& memory, GM_ADDR error_lanes,
                                       const DraftStepsParams& p) {
    AscendC::TPipe pipe;
    DraftStepsKernel<bits_t> op(&pipe, memory, error_lanes, p);
    op.run();
}

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void draft_steps(GM_ADDR error_lanes, DraftStepsAddresses memory, DraftStepsParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    if (p.rope_bytes == 4) {
        dsv4::kernel::run_draft_steps<int32_t>(memory, error_lanes, p);
    } else {
        dsv4::kernel::run_draft_steps<int16_t>(memory, error_lanes, p);
    }
}
