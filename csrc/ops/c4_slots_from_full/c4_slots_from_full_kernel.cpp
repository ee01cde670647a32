#include "device/errors.h"
#include "device/memory.h"
#include "device/npu_kind.h"
#include "device/pipes.h"
#include "device/preload.h"
#include "kernel_operator.h"
#include "ops/c4_slots_from_full/c4_slots_from_full_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// Where a group goes depends on all slots before it, and blocks cannot tell each other what they have counted: a later one
// would read everything again and be done no sooner. So the first block does all: MTE2 fetches a tile while V packs the
// groups of the one before and MTE3 stores those of an earlier one.
class C4SlotsFromFull {
 public:
    __aicore__ inline C4SlotsFromFull(AscendC::TPipe* pipe, GM_ADDR full_loc, GM_ADDR c4_loc, GM_ADDR error_lanes,
                                      const C4SlotsFromFullParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpC4SlotsFromFull) {
        full_loc_ = global<int32_t>(full_loc, static_cast<uint64_t>(p.num_slots));
        c4_loc_ = global<int32_t>(c4_loc, static_cast<uint64_t>(p.capacity_groups));
        pipe->InitBuffer(slot_buffer_, 2 * kC4TileSlots * sizeof(int32_t));
        pipe->InitBuffer(group_buffer_, 2 * kC4TileSlots * sizeof(int32_t));
        pipe->InitBuffer(key_buffer_, kC4TileSlots * sizeof(int32_t));
        pipe->InitBuffer(pattern_buffer_, kC4TileSlots * sizeof(int32_t));
        pipe->InitBuffer(bit_buffer_, kC4TileSlots / 8);
        keys_ = key_buffer_.Get<int32_t>();
        pattern_ = pattern_buffer_.Get<int32_t>();
        bits_ = bit_buffer_.Get<uint8_t>();
    }

    __aicore__ inline void run() {
        AscendC::Duplicate(pattern_, static_cast<int32_t>(kDecidingBits), static_cast<int32_t>(kC4TileSlots));
        // Comparisons go beyond a short tile.
        AscendC::Duplicate(keys_, int32_t{0}, static_cast<int32_t>(kC4TileSlots));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
        AscendC::SetFlag<HardEvent::MTE3_V>(EVENT_ID1);
        fetch(0, 0);
        uint32_t turn = 0;
        for (int64_t slot = 0; slot < p_.num_slots; slot += kC4TileSlots) {
            // The tile before the current one has left V.
            fetch(slot + kC4TileSlots, 1 - turn);
            write(pack(slot, turn), turn);
            turn = 1 - turn;
        }
        AscendC::WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
        AscendC::WaitFlag<HardEvent::MTE3_V>(EVENT_ID1);
        clear_tail();
        errors_.flush();
    }

 private:
    // Each of the two buffers has its own events.
    __aicore__ inline event_t event(uint32_t turn) const { return turn == 0 ? EVENT_ID0 : EVENT_ID1; }

    __aicore__ inline LocalTensor<int32_t> slots(uint32_t turn) {
        return slot_buffer_.Get<int32_t>()[turn * static_cast<uint32_t>(kC4TileSlots)];
    }

    __aicore__ inline LocalTensor<int32_t> groups(uint32_t turn) {
        return group_buffer_.Get<int32_t>()[turn * static_cast<uint32_t>(kC4TileSlots)];
    }

    // Slots of the tile that starts at `first`.
    __aicore__ inline uint32_t tile_slots(int64_t first) const {
        return static_cast<uint32_t>(min_of<int64_t>(kC4TileSlots, p_.num_slots - first));
    }

    __aicore__ inline void fetch(int64_t first, uint32_t turn) {
        if (first < p_.num_slots) {
            load(slots(turn), full_loc_[static_cast<uint64_t>(first)], tile_slots(first));
            AscendC::SetFlag<HardEvent::MTE2_V>(event(turn));
        }
    }

    // Puts the groups that end in a tile next to each other; returns how many they are.
    __aicore__ inline int64_t pack(int64_t first, uint32_t turn) {
        const uint32_t elems = tile_slots(first);
        AscendC::WaitFlag<HardEvent::MTE2_V>(event(turn));
        AscendC::And(keys_.ReinterpretCast<int16_t>(), slots(turn).ReinterpretCast<int16_t>(),
                     pattern_.ReinterpretCast<int16_t>(), static_cast<int32_t>(2 * elems));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftRight(slots(turn), slots(turn), kGroupShift, static_cast<int32_t>(elems));
        compare_equal(bits_, keys_, static_cast<int32_t>(kLastOfGroup), round_up<uint32_t>(elems, kC4CompareSlots));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::WaitFlag<HardEvent::MTE3_V>(event(turn));
        uint64_t found = 0;
        AscendC::GatherMask(groups(turn), slots(turn), bits_.ReinterpretCast<uint32_t>(), true, elems,
                            AscendC::GatherMaskParams{1, 1, 8, 8}, found);
        // The count is a register of V; and what is issued from here on finds V idle.
        order<HardEvent::V_S>();
        return static_cast<int64_t>(found);
    }

    __aicore__ inline void write(int64_t found, uint32_t turn) {
        const int64_t fitting = min_of<int64_t>(found, p_.capacity_groups - written_);
        if (fitting > 0) {
            store(c4_loc_[static_cast<uint64_t>(written_)], groups(turn), static_cast<uint32_t>(fitting));
        }
        AscendC::SetFlag<HardEvent::MTE3_V>(event(turn));
        if (fitting < found) {
            errors_.report(kC4SlotsTooMany, p_.capacity_groups, written_ + found);
        }
        written_ += found;
    }

    __aicore__ inline void clear_tail() {
        if (written_ >= p_.capacity_groups) {
            return;
        }
        AscendC::Duplicate(groups(0), int32_t{0}, static_cast<int32_t>(kC4TileSlots));
        order<HardEvent::V_MTE3>();
        for (int64_t group = written_; group < p_.capacity_groups; group += kC4TileSlots) {
            store(c4_loc_[static_cast<uint64_t>(group)], groups(0),
                  static_cast<uint32_t>(min_of<int64_t>(kC4TileSlots, p_.capacity_groups - group)));
        }
    }

    const C4SlotsFromFullParams& p_;
    GlobalTensor<int32_t> full_loc_, c4_loc_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> slot_buffer_, group_buffer_, key_buffer_, pattern_buffer_, bit_buffer_;
    LocalTensor<int32_t> keys_, pattern_;
    LocalTensor<uint8_t> bits_;
    int64_t written_ = 0;  // groups that end before the current tile
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void c4_slots_from_full(GM_ADDR full_loc, GM_ADDR c4_loc, GM_ADDR error_lanes,
                                                         C4SlotsFromFullParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(3 * sizeof(GM_ADDR) + sizeof(C4SlotsFromFullParams), 1);
    if (AscendC::GetBlockIdx() != 0) {
        return;
    }
    AscendC::TPipe pipe;
    dsv4::kernel::C4SlotsFromFull op(&pipe, full_loc, c4_loc, error_lanes, p);
    op.run();
}
