#include "kernel_operator.h"

#include "device/errors.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "ops/c4_slots_from_full/c4_slots_from_full_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of the full slots. It first counts the groups that end before its share, which says where
// its own go. The last block also knows where the zeros behind all groups start.
class C4SlotsFromFull {
 public:
    __aicore__ inline C4SlotsFromFull(AscendC::TPipe* pipe, GM_ADDR full_loc, GM_ADDR c4_loc, GM_ADDR error_lanes,
                                      const C4SlotsFromFullParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpC4SlotsFromFull) {
        full_loc_ = global<int32_t>(full_loc, static_cast<uint64_t>(p.num_slots));
        c4_loc_ = global<int32_t>(c4_loc, static_cast<uint64_t>(p.capacity_groups));
        pipe->InitBuffer(slot_buffer_, kC4TileSlots * sizeof(int32_t));
        pipe->InitBuffer(key_buffer_, kC4TileSlots * sizeof(int32_t));
        pipe->InitBuffer(pattern_buffer_, kC4TileSlots * sizeof(int32_t));
        pipe->InitBuffer(group_buffer_, kC4TileSlots * sizeof(int32_t));
        pipe->InitBuffer(bit_buffer_, kC4TileSlots / 8);
        slots_ = slot_buffer_.Get<int32_t>();
        keys_ = key_buffer_.Get<int32_t>();
        pattern_ = pattern_buffer_.Get<int32_t>();
        groups_ = group_buffer_.Get<int32_t>();
        bits_ = bit_buffer_.Get<uint8_t>();
    }

    __aicore__ inline void run() {
        const int64_t block = AscendC::GetBlockIdx();
        const int64_t blocks = AscendC::GetBlockNum();
        const BlockShare share = block_share(p_.num_slots, kC4CompareSlots, block, blocks);
        const bool is_last = block == blocks - 1;
        if (share.begin < share.end || is_last) {
            AscendC::Duplicate(pattern_, static_cast<int32_t>(kDecidingBits), static_cast<int32_t>(kC4TileSlots));
            for (int64_t slot = 0; slot < share.begin; slot += kC4TileSlots) {
                written_ += pack(slot, min_of<int64_t>(share.begin - slot, kC4TileSlots));
            }
            for (int64_t slot = share.begin; slot < share.end; slot += kC4TileSlots) {
                write(pack(slot, min_of<int64_t>(share.end - slot, kC4TileSlots)));
            }
        }
        if (is_last) {
            clear_tail();
        }
        errors_.flush();
    }

 private:
    // Puts the groups that end among `count` slots from `first` on next to each other; returns how many they are.
    __aicore__ inline int64_t pack(int64_t first, int64_t count) {
        const uint32_t elems = static_cast<uint32_t>(count);
        const uint32_t compared = round_up<uint32_t>(elems, kC4CompareSlots);
        AscendC::Duplicate(slots_, int32_t{0}, static_cast<int32_t>(compared));
        order<HardEvent::V_MTE2>();
        const uint8_t missing = static_cast<uint8_t>(round_up<uint32_t>(elems, kLaneSlots) - elems);
        AscendC::DataCopyPad(slots_, full_loc_[static_cast<uint64_t>(first)],
                             AscendC::DataCopyExtParams{1, elems * static_cast<uint32_t>(sizeof(int32_t)), 0, 0, 0},
                             AscendC::DataCopyPadExtParams<int32_t>{missing > 0, 0, missing, 0});
        order<HardEvent::MTE2_V>();
        AscendC::And(keys_.ReinterpretCast<int16_t>(), slots_.ReinterpretCast<int16_t>(),
                     pattern_.ReinterpretCast<int16_t>(), static_cast<int32_t>(2 * compared));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftRight(slots_, slots_, kGroupShift, static_cast<int32_t>(compared));
        AscendC::CompareScalar(bits_, keys_, static_cast<int32_t>(kLastOfGroup), AscendC::CMPMODE::EQ, compared);
        // The store before may still read the groups.
        order<HardEvent::MTE3_V>();
        AscendC::PipeBarrier<PIPE_V>();
        uint64_t found = 0;
        AscendC::GatherMask(groups_, slots_, bits_.ReinterpretCast<uint32_t>(), true, elems,
                            AscendC::GatherMaskParams{1, 1, 8, 8}, found);
        // The count is a register of V; and what is issued from here on finds V idle.
        order<HardEvent::V_S>();
        return static_cast<int64_t>(found);
    }

    __aicore__ inline void write(int64_t found) {
        const int64_t fitting = min_of<int64_t>(found, p_.capacity_groups - written_);
        if (fitting > 0) {
            store(c4_loc_[static_cast<uint64_t>(written_)], groups_, static_cast<uint32_t>(fitting));
        }
        if (fitting < found) {
            errors_.report(kC4SlotsTooMany, p_.capacity_groups, written_ + found);
        }
        written_ += found;
    }

    __aicore__ inline void clear_tail() {
        if (written_ >= p_.capacity_groups) {
            return;
        }
        order<HardEvent::MTE3_V>();
        AscendC::Duplicate(groups_, int32_t{0}, static_cast<int32_t>(kC4TileSlots));
        order<HardEvent::V_MTE3>();
        for (int64_t group = written_; group < p_.capacity_groups; group += kC4TileSlots) {
            store(c4_loc_[static_cast<uint64_t>(group)], groups_,
                  static_cast<uint32_t>(min_of<int64_t>(kC4TileSlots, p_.capacity_groups - group)));
        }
    }

    static constexpr uint32_t kLaneSlots = kUbBlockBytes / sizeof(int32_t);

    const C4SlotsFromFullParams& p_;
    GlobalTensor<int32_t> full_loc_, c4_loc_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> slot_buffer_, key_buffer_, pattern_buffer_, group_buffer_, bit_buffer_;
    LocalTensor<int32_t> slots_, keys_, pattern_, groups_;
    LocalTensor<uint8_t> bits_;
    int64_t written_ = 0;  // groups that end before the current tile
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void c4_slots_from_full(GM_ADDR full_loc, GM_ADDR c4_loc, GM_ADDR error_lanes,
                                                         C4SlotsFromFullParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    dsv4::kernel::C4SlotsFromFull op(&pipe, full_loc, c4_loc, error_lanes, p);
    op.run();
}
