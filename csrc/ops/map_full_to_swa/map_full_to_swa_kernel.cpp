#include "device/errors.h"
#include "device/iota.h"
#include "device/preload.h"
#include "device/segments.h"
#include "kernel_operator.h"
#include "ops/map_full_to_swa/map_full_to_swa_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of all units and works on a batch of tiles at a time: MTE2 brings the page ids of both
// tables, V makes swa slots and widens them, MTE3 writes each page to where its full slots lie in the mapping.
class MapFullToSwa {
 public:
    __aicore__ inline MapFullToSwa(AscendC::TPipe* pipe, GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR segments,
                                   GM_ADDR full_to_swa, GM_ADDR error_lanes, const MapFullToSwaParams& p)
        : p_(p), cursor_(pipe, segments, p.num_segments), errors_(pipe, error_lanes, kErrorOpMapFullToSwa) {
        full_table_ = global<int32_t>(full_table, static_cast<uint64_t>(p.max_requests * p.full_row_elems));
        swa_table_ = global<int32_t>(swa_table, static_cast<uint64_t>(p.max_requests * p.swa_row_elems));
        mapping_ = global<int64_t>(full_to_swa, static_cast<uint64_t>(p.num_slots));
        pipe->InitBuffer(iota_buffer_, kMapTileUnits * sizeof(int32_t));
        pipe->InitBuffer(page_buffer_, 2 * kMapIds * sizeof(int32_t));
        pipe->InitBuffer(swa_buffer_, kMapTileUnits * sizeof(int32_t));
        pipe->InitBuffer(entry_buffer_, kMapTileUnits * sizeof(int64_t));
        iota_ = iota_buffer_.Get<int32_t>();
        full_pages_ = page_buffer_.Get<int32_t>();
        swa_pages_ = full_pages_[kMapIds];
        swa_slots_ = swa_buffer_.Get<int32_t>();
        entries_ = entry_buffer_.Get<int64_t>();
    }

    __aicore__ inline void run() {
        const BlockShare share = cursor_.share();
        if (share.begin < share.end) {
            fill_iota(iota_, kMapTileUnits);
            for (int64_t unit = share.begin; unit < share.end;) {
                unit = batch(unit, share.end);
            }
        }
        errors_.flush();
    }

 private:
    // Room for the page ids of one table: those of each tile start at a 32-byte boundary.
    static constexpr uint32_t kMapIds = kMapTilePages + kMapBatchTiles * static_cast<uint32_t>(kMapPitchUnits);

    // A tile of one segment.
    struct Piece {
        MapSegment segment;
        uint32_t index;  // of the segment in the list
        int32_t begin;   // unit
        MapTile tile;
        uint32_t ids;   // where its page ids lie in full_pages_ and swa_pages_
        uint32_t area;  // where its units lie in swa_slots_ and entries_
    };

    // Works on tiles from `unit` of the whole list on; returns the first unit that is left.
    __aicore__ inline int64_t batch(int64_t unit, int64_t end) {
        uint32_t ids = 0;
        uint32_t units = 0;
        num_pieces_ = 0;
        while (unit < end && num_pieces_ < kMapBatchTiles) {
            SegmentPiece<MapSegment> piece = cursor_.piece(unit, end);
            const int32_t fault = map_fault(piece.segment, p_);
            if (fault == kMapValid) {
                const MapTile tile = map_tile(piece.begin, piece.end, p_);
                const uint32_t units_after = units + static_cast<uint32_t>(tile.pages * tile.pitch_units);
                if (units_after > kMapTileUnits) {
                    break;
                }
                piece.end = piece.begin + tile.pages * tile.page_units;
                pieces_[num_pieces_++] = Piece{piece.segment, cursor_.index(), piece.begin, tile, ids, units};
                ids += round_up<uint32_t>(static_cast<uint32_t>(tile.pages), kMapPitchUnits);
                units = units_after;
            } else {
                errors_.report(fault, cursor_.index(), piece.segment.request);
            }
            unit += piece.items();
            cursor_.pass(piece);
        }
        fetch();
        widen();
        write();
        return unit;
    }

    __aicore__ inline void fetch() {
        order<HardEvent::S_MTE2>();
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            const MapSegment& s = piece.segment;
            const uint32_t pages = static_cast<uint32_t>(piece.tile.pages);
            load(full_pages_[piece.ids], full_table_[full_entry_elems(s, piece.begin, p_)], pages);
            if (s.source == kMapTable) {
                load(swa_pages_[piece.ids], swa_table_[swa_entry_elems(s, piece.begin, p_)], pages);
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
                make_swa_slots(piece);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Cast(entries, swa_slots_[piece.area], AscendC::RoundMode::CAST_NONE,
                              static_cast<uint32_t>(units));
            } else {
                AscendC::Duplicate(entries.ReinterpretCast<int32_t>(), int32_t{0}, 2 * units);
            }
        }
        order<HardEvent::V_MTE3>();
    }

    // A token whose page the swa table does not hold has no swa slot.
    __aicore__ inline void make_swa_slots(const Piece& piece) {
        for (int32_t page = 0; page < piece.tile.pages; ++page) {
            const uint32_t area = piece.area + static_cast<uint32_t>(page * piece.tile.pitch_units);
            const int64_t id = swa_pages_.GetValue(piece.ids + static_cast<uint32_t>(page));
            if (id > 0) {
                const int64_t first = slot_of(id, piece.begin + page * piece.tile.page_units, p_.page_shift);
                AscendC::Adds(swa_slots_[area], iota_, static_cast<int32_t>(first), piece.tile.page_units);
            } else {
                AscendC::Duplicate(swa_slots_[area], int32_t{0}, piece.tile.page_units);
            }
        }
    }

    __aicore__ inline void write() {
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            for (int32_t page = 0; page < piece.tile.pages; ++page) {
                const int64_t full_page = full_pages_.GetValue(piece.ids + static_cast<uint32_t>(page));
                if (is_mapped_page(full_page, p_)) {
                    const int64_t unit = piece.begin + page * piece.tile.page_units;
                    store(mapping_[static_cast<uint64_t>(slot_of(full_page, unit, p_.page_shift))],
                          entries_[piece.area + static_cast<uint32_t>(page * piece.tile.pitch_units)],
                          static_cast<uint32_t>(piece.tile.page_units));
                } else {
                    errors_.report(kMapFullPage, piece.index, full_page);
                }
            }
        }
    }

    const MapFullToSwaParams& p_;
    GlobalTensor<int32_t> full_table_, swa_table_;
    GlobalTensor<int64_t> mapping_;
    SegmentCursor<MapSegment> cursor_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> iota_buffer_, page_buffer_, swa_buffer_, entry_buffer_;
    LocalTensor<int32_t> iota_, full_pages_, swa_pages_, swa_slots_;
    LocalTensor<int64_t> entries_;
    Piece pieces_[kMapBatchTiles];
    uint32_t num_pieces_ = 0;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void map_full_to_swa(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR segments,
                                                      GM_ADDR full_to_swa, GM_ADDR error_lanes, MapFullToSwaParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(5 * sizeof(GM_ADDR) + sizeof(MapFullToSwaParams), 1);
    AscendC::TPipe pipe;
    dsv4::kernel::MapFullToSwa op(&pipe, full_table, swa_table, segments, full_to_swa, error_lanes, p);
    op.run();
}
