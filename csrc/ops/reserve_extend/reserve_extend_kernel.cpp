#include "kernel_operator.h"

#include "device/errors.h"
#include "device/iota.h"
#include "device/pools.h"
#include "device/segments.h"
#include "ops/reserve_extend/reserve_extend_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of all units, cuts it into pieces of one segment each and works on a batch of pieces at
// a time: MTE2 fetches the page ids of the pieces, from the tables or from the rings, V makes slots of them, MTE3
// writes each piece to its output and the pages that were taken to their tables.
class ReserveExtend {
 public:
    __aicore__ inline ReserveExtend(AscendC::TPipe* pipe, const PoolAddresses& tables, GM_ADDR free_pages,
                                    GM_ADDR segments, const PoolAddresses& slots, GM_ADDR error_lanes,
                                    const ReserveExtendParams& p)
        : p_(p),
          tables_(tables),
          slots_(slots),
          cursor_(pipe, segments, p.num_segments),
          errors_(pipe, error_lanes, kErrorOpReserveExtend) {
        free_pages_ = global<int32_t>(free_pages, static_cast<uint64_t>(ring_entries(p.pools)));
        pipe->InitBuffer(iota_buffer_, kReservePieceUnits * sizeof(int32_t));
        pipe->InitBuffer(value_buffer_, kReserveBatchUnits * sizeof(int32_t));
        pipe->InitBuffer(page_buffer_, kReserveBatchUnits * sizeof(int32_t));
        pipe->InitBuffer(scratch_buffer_, 3 * kReservePieceUnits * sizeof(int32_t));
        iota_ = iota_buffer_.Get<int32_t>();
        values_ = value_buffer_.Get<int32_t>();
        pages_ = page_buffer_.Get<int32_t>();
        scratch_ = scratch_buffer_.Get<int32_t>();
    }

    __aicore__ inline void run() {
        const BlockShare share = cursor_.share();
        if (share.begin < share.end) {
            fill_iota(iota_, kReservePieceUnits);
            for (int64_t unit = share.begin; unit < share.end;) {
                unit = batch(unit, share.end);
            }
        }
        errors_.flush();
    }

 private:
    struct Piece {
        ReserveSegment segment;
        int32_t begin;  // unit
        int32_t units;
        uint32_t area;  // where the piece lies in values_, and its page ids in pages_
        int32_t page_shift;
        uint32_t num_pages;
    };

    // Works on pieces from `unit` of the whole list on; returns the first unit that is left.
    __aicore__ inline int64_t batch(int64_t unit, int64_t end) {
        // MTE3 has written the last batch, for which it waited for V. V makes the next slots after S has waited for the
        // fetching, and so for MTE3.
        order<HardEvent::MTE3_MTE2>();
        order<HardEvent::S_MTE2>();
        uint32_t used = 0;
        num_pieces_ = 0;
        while (unit < end && num_pieces_ < kReserveBatchPieces) {
            SegmentPiece<ReserveSegment> piece = cursor_.piece(unit, end);
            const int32_t fault = segment_fault(piece.segment, p_);
            if (fault == kSegmentValid) {
                piece.end = piece.begin + piece_units(piece.segment, piece.begin, piece.end, p_.pools);
                if (used + piece.items() > kReserveBatchUnits) {
                    break;
                }
                const int32_t shift = p_.pools.page_shift[piece.segment.pool];
                const int64_t pages = pages_touched(piece.begin, piece.end, shift);
                pieces_[num_pieces_++] =
                    Piece{piece.segment, piece.begin, piece.items(), used, shift, static_cast<uint32_t>(pages)};
                used += round_up<uint32_t>(piece.items(), kUbBlockBytes / sizeof(int32_t));
            } else {
                errors_.report(fault, cursor_.index(), piece.segment.request);
            }
            unit += piece.items();
            cursor_.pass(piece);
        }
        fetch();
        make_slots();
        write();
        return unit;
    }

    __aicore__ inline GlobalTensor<int32_t> table(const ReserveSegment& s, int64_t unit) {
        return tables_.tensor(s.pool, table_elems(s.pool, p_.pools))[unit_entry_elems(s, unit, p_.pools)];
    }

    __aicore__ inline void fetch() {
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            const ReserveSegment& s = piece.segment;
            if (s.source == kTakePages) {
                load(pages_[piece.area], free_pages_[free_page_elems(s, piece.begin, p_.pools)], piece.num_pages);
            } else if (s.source != kNoSlots) {
                load(pages_[piece.area], table(s, piece.begin), piece.num_pages);
            }
        }
        order<HardEvent::MTE2_S>();
    }

    __aicore__ inline void make_slots() {
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            if (piece.segment.source == kNoSlots) {
                AscendC::Duplicate(values_[piece.area], int32_t{0}, piece.units);
            } else if (piece.num_pages == 1) {
                const int64_t first_slot = slot_of(pages_.GetValue(piece.area), piece.begin, piece.page_shift);
                AscendC::Adds(values_[piece.area], iota_, static_cast<int32_t>(first_slot), piece.units);
            } else {
                several_pages(piece);
            }
        }
    }

    // With i counted from the start of the first page: slot = (page_id[i / P] - i / P) * P + i.
    __aicore__ inline void several_pages(const Piece& piece) {
        const int32_t page_shift = piece.page_shift;
        const int32_t units = piece.units;
        const LocalTensor<int32_t> index = scratch_;
        const LocalTensor<int32_t> page = scratch_[kReservePieceUnits];
        const LocalTensor<int32_t> page_id = scratch_[2 * kReservePieceUnits];
        const LocalTensor<int32_t> slots = values_[piece.area];
        // The piece before may still use the scratch.
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(index, iota_, static_cast<int32_t>(offset_in_page(piece.begin, page_shift)), units);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftRight(page, index, page_shift, units);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(page_id, page, int32_t{2}, units);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Gather(slots, pages_[piece.area], page_id.ReinterpretCast<uint32_t>(), uint32_t{0},
                        static_cast<uint32_t>(units));
        AscendC::ShiftLeft(page, page, page_shift, units);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(slots, slots, page_shift, units);
        AscendC::Sub(index, index, page, units);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(slots, slots, index, units);
    }

    __aicore__ inline void write() {
        order<HardEvent::V_MTE3>();
        for (uint32_t i = 0; i < num_pieces_;) {
            const Piece& piece = pieces_[i];
            const ReserveSegment& s = piece.segment;
            const uint32_t rows = equal_pieces(i);
            store_rows(slots_.tensor(s.pool, p_.num_slots[s.pool])[slot_elems(s, piece.begin)], values_[piece.area],
                       rows, static_cast<uint32_t>(piece.units),
                       round_up<uint32_t>(piece.units, kUbBlockBytes / sizeof(int32_t)));
            i += rows;
        }
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            const ReserveSegment& s = piece.segment;
            if (s.source == kTakePages && offset_in_page(piece.begin, piece.page_shift) == 0) {
                store(table(s, piece.begin), pages_[piece.area], piece.num_pages);
            }
        }
    }

    // Pieces from `piece` on that are equally long and lie one after another in the output of their pool.
    __aicore__ inline uint32_t equal_pieces(uint32_t piece) const {
        const Piece& first = pieces_[piece];
        int64_t entry = slot_elems(first.segment, first.begin);
        uint32_t end = piece;
        do {
            ++end;
            entry += first.units;
        } while (end < num_pieces_ && pieces_[end].segment.pool == first.segment.pool &&
                 pieces_[end].units == first.units && slot_elems(pieces_[end].segment, pieces_[end].begin) == entry);
        return end - piece;
    }

    const ReserveExtendParams& p_;
    const PoolAddresses& tables_;
    const PoolAddresses& slots_;
    GlobalTensor<int32_t> free_pages_;
    SegmentCursor<ReserveSegment> cursor_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> iota_buffer_, value_buffer_, page_buffer_, scratch_buffer_;
    LocalTensor<int32_t> iota_, values_, pages_, scratch_;
    Piece pieces_[kReserveBatchPieces];
    uint32_t num_pieces_ = 0;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void reserve_extend(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                     GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                     GM_ADDR c128_state_table, GM_ADDR free_pages, GM_ADDR segments,
                                                     GM_ADDR full_slots, GM_ADDR swa_slots, GM_ADDR c4_slots,
                                                     GM_ADDR c128_slots, GM_ADDR c4_state_slots,
                                                     GM_ADDR c128_state_slots, GM_ADDR error_lanes,
                                                     ReserveExtendParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    const dsv4::kernel::PoolAddresses tables{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const dsv4::kernel::PoolAddresses slots{
        {full_slots, swa_slots, c4_slots, c128_slots, c4_state_slots, c128_state_slots}};
    dsv4::kernel::ReserveExtend op(&pipe, tables, free_pages, segments, slots, error_lanes, p);
    op.run();
}
