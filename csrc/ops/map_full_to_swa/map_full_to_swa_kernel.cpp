#include "kernel_operator.h"

#include "device/errors.h"
#include "device/segments.h"
#include "ops/map_full_to_swa/map_full_to_swa_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of all units and works on a tile of pages at a time: MTE2 brings the first full slot of
// each page and the swa slots, V widens them, MTE3 writes each page to where its full slots lie in the mapping.
class MapFullToSwa {
 public:
    __aicore__ inline MapFullToSwa(AscendC::TPipe* pipe, GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR segments,
                                   GM_ADDR full_to_swa, GM_ADDR error_lanes, const MapFullToSwaParams& p)
        : p_(p), cursor_(pipe, segments, p.num_segments), errors_(pipe, error_lanes, kErrorOpMapFullToSwa) {
        full_table_ = global<int32_t>(full_table, static_cast<uint64_t>(p.max_requests * p.full_row_elems));
        swa_table_ = global<int32_t>(swa_table, static_cast<uint64_t>(p.max_requests * p.swa_row_elems));
        mapping_ = global<int64_t>(full_to_swa, static_cast<uint64_t>(p.num_slots));
        pipe->InitBuffer(first_buffer_, kMapTilePages * kUbBlockBytes);
        pipe->InitBuffer(swa_buffer_, kMapTileUnits * sizeof(int32_t));
        pipe->InitBuffer(entry_buffer_, kMapTileUnits * sizeof(int64_t));
        first_slots_ = first_buffer_.Get<int32_t>();
        swa_slots_ = swa_buffer_.Get<int32_t>();
        entries_ = entry_buffer_.Get<int64_t>();
    }

    __aicore__ inline void run() {
        const BlockShare share = cursor_.share();
        if (share.begin < share.end) {
            cursor_.seek(share.begin, share.end);
            for (int64_t unit = share.begin; unit < share.end;) {
                const SegmentPiece<MapSegment> piece = cursor_.piece(unit, share.end);
                const int32_t fault = map_fault(piece.segment, p_);
                if (fault == kMapValid) {
                    map(piece.segment, piece.begin, piece.end);
                } else {
                    errors_.report(fault, cursor_.index(), piece.segment.request);
                }
                unit += piece.units();
                cursor_.pass(piece);
            }
        }
        errors_.flush();
    }

 private:
    __aicore__ inline void map(const MapSegment& s, int32_t begin, int32_t end) {
        for (int32_t unit = begin; unit < end;) {
            const MapTile tile = map_tile(unit, end, p_.page_shift);
            fetch(s, unit, tile);
            write(s, unit, tile);
            unit += tile.pages * tile.page_units;
        }
    }

    __aicore__ inline void fetch(const MapSegment& s, int32_t unit, const MapTile& tile) {
        const uint32_t pages = static_cast<uint32_t>(tile.pages);
        order<HardEvent::S_MTE2>();
        load_rows(first_slots_, full_table_[static_cast<uint64_t>(full_offset_elems(s, unit, p_))], pages, 1,
                  (1u << p_.page_shift) - 1, static_cast<uint32_t>(kMapPitchUnits));
        if (s.source == kMapTable) {
            order<HardEvent::V_MTE2>();
            load_rows(swa_slots_, swa_table_[static_cast<uint64_t>(swa_offset_elems(s, unit, p_))], pages,
                      static_cast<uint32_t>(tile.page_units), 0, static_cast<uint32_t>(tile.pitch_units));
        }
        order<HardEvent::MTE2_S>();
    }

    __aicore__ inline void write(const MapSegment& s, int32_t unit, const MapTile& tile) {
        const int32_t units = tile.pages * tile.pitch_units;
        order<HardEvent::MTE3_V>();
        if (s.source == kMapTable) {
            AscendC::Cast(entries_, swa_slots_, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(units));
        } else {
            AscendC::Duplicate(entries_.ReinterpretCast<int32_t>(), int32_t{0}, 2 * units);
        }
        order<HardEvent::V_MTE3>();
        for (int32_t page = 0; page < tile.pages; ++page) {
            const int32_t full_slot = first_slots_.GetValue(static_cast<uint32_t>(page * kMapPitchUnits));
            if (is_mapped_slot(full_slot, unit + page * tile.page_units, p_)) {
                store(mapping_[static_cast<uint64_t>(full_slot)],
                      entries_[static_cast<uint32_t>(page * tile.pitch_units)], static_cast<uint32_t>(tile.page_units));
            } else {
                errors_.report(kMapFullSlot, cursor_.index(), full_slot);
            }
        }
    }

    const MapFullToSwaParams& p_;
    GlobalTensor<int32_t> full_table_, swa_table_;
    GlobalTensor<int64_t> mapping_;
    SegmentCursor<MapSegment> cursor_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> first_buffer_, swa_buffer_, entry_buffer_;
    LocalTensor<int32_t> first_slots_, swa_slots_;
    LocalTensor<int64_t> entries_;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void map_full_to_swa(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR segments,
                                                      GM_ADDR full_to_swa, GM_ADDR error_lanes, MapFullToSwaParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    dsv4::kernel::MapFullToSwa op(&pipe, full_table, swa_table, segments, full_to_swa, error_lanes, p);
    op.run();
}
