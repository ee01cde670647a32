#include "kernel_operator.h"

#include "device/errors.h"
#include "device/segments.h"
#include "ops/map_full_to_swa/map_full_to_swa_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of all units and works on a batch of tiles at a time: MTE2 brings the first full slot of
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
                unit = batch(unit, share.end);
            }
        }
        errors_.flush();
    }

 private:
    // A tile of one segment.
    struct Piece {
        MapSegment segment;
        uint32_t index;  // of the segment in the list
        int32_t begin_unit;
        MapTile tile;
        uint32_t first_page;  // where its pages lie in first_slots_
        uint32_t area;        // where its units lie in swa_slots_ and entries_
    };

    // Works on tiles from `unit` of the whole list on; returns the first unit that is left.
    __aicore__ inline int64_t batch(int64_t unit, int64_t end) {
        uint32_t pages = 0;
        uint32_t units = 0;
        num_pieces_ = 0;
        while (unit < end && num_pieces_ < kMapBatchTiles) {
            SegmentPiece<MapSegment> piece = cursor_.piece(unit, end);
            const int32_t fault = map_fault(piece.segment, p_);
            if (fault == kMapValid) {
                const MapTile tile = map_tile(piece.begin, piece.end, p_.page_shift);
                const uint32_t pages_after = pages + static_cast<uint32_t>(tile.pages);
                const uint32_t units_after = units + static_cast<uint32_t>(tile.pages * tile.pitch_units);
                if (pages_after > kMapTilePages || units_after > kMapTileUnits) {
                    break;
                }
                piece.end = piece.begin + tile.pages * tile.page_units;
                pieces_[num_pieces_++] = Piece{piece.segment, cursor_.index(), piece.begin, tile, pages, units};
                pages = pages_after;
                units = units_after;
            } else {
                errors_.report(fault, cursor_.index(), piece.segment.request);
            }
            unit += piece.units();
            cursor_.pass(piece);
        }
        fetch();
        widen();
        write();
        return unit;
    }

    __aicore__ inline void fetch() {
        order<HardEvent::S_MTE2>();
        order<HardEvent::V_MTE2>();
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            const MapSegment& s = piece.segment;
            const uint32_t pages = static_cast<uint32_t>(piece.tile.pages);
            load_rows(first_slots_[piece.first_page * static_cast<uint32_t>(kMapPitchUnits)],
                      full_table_[static_cast<uint64_t>(full_offset_elems(s, piece.begin_unit, p_))], pages, 1,
                      (1u << p_.page_shift) - 1, static_cast<uint32_t>(kMapPitchUnits));
            if (s.source == kMapTable) {
                load_rows(swa_slots_[piece.area],
                          swa_table_[static_cast<uint64_t>(swa_offset_elems(s, piece.begin_unit, p_))], pages,
                          static_cast<uint32_t>(piece.tile.page_units), 0,
                          static_cast<uint32_t>(piece.tile.pitch_units));
            }
        }
        order<HardEvent::MTE2_S>();
    }

    __aicore__ inline void widen() {
        order<HardEvent::MTE3_V>();
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            const int32_t units = piece.tile.pages * piece.tile.pitch_units;
            const LocalTensor<int64_t> entries = entries_[piece.area];
            if (piece.segment.source == kMapTable) {
                AscendC::Cast(entries, swa_slots_[piece.area], AscendC::RoundMode::CAST_NONE,
                              static_cast<uint32_t>(units));
            } else {
                AscendC::Duplicate(entries.ReinterpretCast<int32_t>(), int32_t{0}, 2 * units);
            }
        }
        order<HardEvent::V_MTE3>();
    }

    __aicore__ inline void write() {
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            for (int32_t page = 0; page < piece.tile.pages; ++page) {
                const int32_t full_slot = first_slots_.GetValue((piece.first_page + static_cast<uint32_t>(page)) *
                                                                static_cast<uint32_t>(kMapPitchUnits));
                if (is_mapped_slot(full_slot, piece.begin_unit + page * piece.tile.page_units, p_)) {
                    store(mapping_[static_cast<uint64_t>(full_slot)],
                          entries_[piece.area + static_cast<uint32_t>(page * piece.tile.pitch_units)],
                          static_cast<uint32_t>(piece.tile.page_units));
                } else {
                    errors_.report(kMapFullSlot, piece.index, full_slot);
                }
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
    Piece pieces_[kMapBatchTiles];
    uint32_t num_pieces_ = 0;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void map_full_to_swa(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR segments,
                                                      GM_ADDR full_to_swa, GM_ADDR error_lanes, MapFullToSwaParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    dsv4::kernel::MapFullToSwa op(&pipe, full_table, swa_table, segments, full_to_swa, error_lanes, p);
    op.run();
}
