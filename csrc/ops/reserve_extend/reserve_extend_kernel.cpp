#include "device/errors.h"
#include "device/iota.h"
#include "device/pools.h"
#include "device/preload.h"
#include "device/segments.h"
#include "kernel_operator.h"
#include "ops/reserve_extend/alike_segments.h"
#include "ops/reserve_extend/reserve_extend_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of all units, finds runs of segments that are alike, cuts the others into pieces of one
// segment each, and works on a batch of runs and pieces at a time: MTE2 fetches their page ids, from the tables or from
// the rings, V makes slots of them, MTE3 writes these to the outputs and the pages that were taken to their tables.
class ReserveExtend {
 public:
    __aicore__ inline ReserveExtend(AscendC::TPipe* pipe, const PoolAddresses& tables, GM_ADDR free_pages,
                                    GM_ADDR segments, const PoolAddresses& slots, GM_ADDR error_lanes,
                                    const ReserveExtendParams& p)
        : p_(p), cursor_(pipe, segments, p.num_segments), errors_(pipe, error_lanes, kErrorOpReserveExtend) {
        memory_.free_pages = global<int32_t>(free_pages, static_cast<uint64_t>(ring_entries(p.pools)));
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            memory_.tables[pool] = tables.tensor(pool, table_elems(pool, p.pools));
            memory_.slots[pool] = slots.tensor(pool, p.num_slots[pool]);
        }
        pipe->InitBuffer(iota_buffer_, kReservePieceUnits * sizeof(int32_t));
        pipe->InitBuffer(alike_buffer_, static_cast<uint32_t>(kAlikeElems) * sizeof(int32_t));
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
            AlikeSegments alike(p_, memory_, iota_, alike_buffer_.Get<int32_t>());
            alike.prepare();
            for (int64_t unit = share.begin; unit < share.end;) {
                unit = batch(alike, unit, share.end);
            }
        }
        errors_.flush();
    }

 private:
    struct Piece {
        int32_t pool;
        int32_t offset;  // of the first unit in its page
        int32_t units;
        uint32_t area;       // where the piece lies in values_, and its page ids in pages_
        uint32_t num_pages;  // 0: the units have no slots
        int64_t written;     // entry of the table that takes the page ids, or kNotWritten
    };
    static constexpr int64_t kNotWritten = -1;

    // Pieces that are equally long and lie one after another in the output of their pool: one copy stores them.
    struct Stretch {
        int32_t pool;
        int32_t units;  // of each piece
        uint32_t area;
        uint32_t pieces;
        int64_t entry;  // of the output
        int64_t end;
    };

    // Works on runs and pieces from `unit` of the whole list on; returns the first unit that is left.
    __aicore__ inline int64_t batch(AlikeSegments& alike, int64_t unit, int64_t end) {
        // MTE3 has written the last batch, for which it waited for V.
        order<HardEvent::MTE3_MTE2>();
        order<HardEvent::MTE3_V>();
        order<HardEvent::S_MTE2>();
        used_ = 0;
        num_pieces_ = 0;
        num_stretches_ = 0;
        uint32_t num_runs = 0;
        uint32_t place = 0;
        while (unit < end && num_pieces_ < kReserveBatchPieces && num_runs < kAlikeRuns) {
            const ReserveSegment s = cursor_.segment();
            if (odd_ == 0) {
                AlikeRun& run = runs_[num_runs];
                run = AlikeRun{s, count_alike(s, unit, end), place};
                if (run.segments >= kLeastAlike) {
                    if (place + run.segments > static_cast<uint32_t>(kAlikeSegments)) {
                        break;
                    }
                    if (alike.fetch(run, cursor_.chunk(), cursor_.current())) {
                        ++num_runs;
                        place += round_up<uint32_t>(run.segments, kUbBlockBytes / sizeof(int32_t));
                        unit += run.segments * run.units();
                        cursor_.skip(run.segments);
                        continue;
                    }
                }
                odd_ = run.segments;
            }
            const int32_t units = add_piece(s, unit, end);
            if (units == 0) {
                break;
            }
            unit += units;
        }
        order<HardEvent::MTE2_S>();
        make_slots();
        for (uint32_t i = 0; i < num_runs; ++i) {
            alike.make_slots(runs_[i]);
        }
        order<HardEvent::V_MTE3>();
        write_slots();
        for (uint32_t i = 0; i < num_runs; ++i) {
            alike.store(runs_[i]);
        }
        return unit;
    }

    // Segments from the current one, which is `first`, on of which a run may consist; 1 where none can begin.
    __aicore__ inline uint32_t count_alike(const ReserveSegment& first, int64_t unit, int64_t end) const {
        const int32_t units = first.end - first.begin;
        if (unit != first.items_before || units <= 0 || units > kLaneElems || !is_pool(first.pool)) {
            return 1;
        }
        const int32_t page_units = int32_t{1} << p_.pools.page_shift[first.pool];
        const bool takes = first.source == kTakePages;
        // Pairs of fields: source and ring position, output and units before. Both of a pair go on at once.
        const int64_t ring_step = takes ? int64_t{1} << 32 : 0;
        const int64_t output_step = (int64_t{1} << 32 | 1) * units;
        int64_t ring = cursor_.pair(0, 2);
        int64_t output = cursor_.pair(0, 3);
        const uint32_t most = static_cast<uint32_t>(
            min_of<int64_t>(min_of<int64_t>(cursor_.left(), kAlikeSegments), (end - unit) / units));
        uint32_t count = 0;
        while (count < most && cursor_.pair(count, 2) == ring && cursor_.pair(count, 3) == output &&
               (takes || (static_cast<int32_t>(cursor_.pair(count, 1)) & (page_units - 1)) <= page_units - units)) {
            ring += ring_step;
            output += output_step;
            ++count;
        }
        // Where the next one begins says how long the others are.
        if (count > 1 && length_of(cursor_.pair(count - 1, 1)) != units) {
            --count;
        }
        return max_of<uint32_t>(1, count);
    }

    // Of an interval, a pair of fields.
    __aicore__ inline int32_t length_of(int64_t interval) const {
        return static_cast<int32_t>(interval >> 32) - static_cast<int32_t>(interval);
    }

    // Keeps the next piece of the batch, of segment s, and fetches its page ids, if the segment is good. Returns how
    // many units it passes; 0 where the batch is full.
    __aicore__ inline int32_t add_piece(const ReserveSegment& s, int64_t unit, int64_t end) {
        const SegmentPiece<ReserveSegment> piece = cursor_.piece(s, unit, end);
        int32_t units = piece.items();
        const int32_t fault = segment_fault(s, p_);
        if (fault != kSegmentValid) {
            errors_.report(fault, cursor_.index(), s.request);
        } else {
            units = piece_units(s, piece.begin, piece.end, p_.pools);
            if (used_ + units > kReserveBatchUnits) {
                return 0;
            }
            const int64_t pages = pages_touched(piece.begin, piece.begin + units, p_.pools.page_shift[s.pool]);
            add(s, piece.begin, units, s.source == kNoSlots ? 0 : static_cast<uint32_t>(pages));
        }
        if (piece.begin + units == s.end) {
            cursor_.next();
            --odd_;
        }
        return units;
    }

    // Keeps a piece of the batch and fetches its page ids. num_pages: 0 where the units have no slots.
    __aicore__ inline void add(const ReserveSegment& s, int32_t begin, int32_t units, uint32_t num_pages) {
        const int32_t offset = static_cast<int32_t>(offset_in_page(begin, p_.pools.page_shift[s.pool]));
        int64_t written = kNotWritten;
        if (num_pages != 0) {
            const int64_t entry = unit_entry_elems(s, begin, p_.pools);
            if (s.source == kTakePages) {
                load(pages_[used_], memory_.free_pages[free_page_elems(s, begin, p_.pools)], num_pages);
                written = offset == 0 ? entry : kNotWritten;
            } else {
                load(pages_[used_], memory_.tables[s.pool][entry], num_pages);
            }
        }
        add_to_stretch(s.pool, units, slot_elems(s, begin));
        pieces_[num_pieces_++] = Piece{s.pool, offset, units, used_, num_pages, written};
        used_ += round_up<uint32_t>(units, kUbBlockBytes / sizeof(int32_t));
    }

    // entry: of the pool's output.
    __aicore__ inline void add_to_stretch(int32_t pool, int32_t units, int64_t entry) {
        if (num_stretches_ > 0) {
            Stretch& last = stretches_[num_stretches_ - 1];
            if (last.end == entry && last.pool == pool && last.units == units) {
                ++last.pieces;
                last.end += units;
                return;
            }
        }
        stretches_[num_stretches_++] = Stretch{pool, units, used_, 1, entry, entry + units};
    }

    // Of all pieces, and writes the pages that were taken, for which S has waited.
    __aicore__ inline void make_slots() {
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            if (piece.num_pages == 1) {
                const int32_t page_start = pages_.GetValue(piece.area) << p_.pools.page_shift[piece.pool];
                AscendC::Adds(values_[piece.area], iota_, page_start + piece.offset, piece.units);
            } else if (piece.num_pages == 0) {
                AscendC::Duplicate(values_[piece.area], int32_t{0}, piece.units);
            } else {
                several_pages(piece);
            }
            if (piece.written != kNotWritten) {
                store(memory_.tables[piece.pool][static_cast<uint64_t>(piece.written)], pages_[piece.area],
                      piece.num_pages);
            }
        }
    }

    // With i counted from the start of the first page: slot = (page_id[i / P] - i / P) * P + i.
    __aicore__ inline void several_pages(const Piece& piece) {
        const int32_t page_shift = p_.pools.page_shift[piece.pool];
        const int32_t units = piece.units;
        const LocalTensor<int32_t> index = scratch_;
        const LocalTensor<int32_t> page = scratch_[kReservePieceUnits];
        const LocalTensor<int32_t> page_id = scratch_[2 * kReservePieceUnits];
        const LocalTensor<int32_t> slots = values_[piece.area];
        // The piece before may still use the scratch.
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(index, iota_, piece.offset, units);
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

    __aicore__ inline void write_slots() {
        for (uint32_t i = 0; i < num_stretches_; ++i) {
            const Stretch& stretch = stretches_[i];
            const uint32_t units = static_cast<uint32_t>(stretch.units);
            store_rows(memory_.slots[stretch.pool][static_cast<uint64_t>(stretch.entry)], values_[stretch.area],
                       stretch.pieces, units,
                       round_up<uint32_t>(units, kUbBlockBytes / sizeof(int32_t)));
        }
    }

    const ReserveExtendParams& p_;
    ReservedMemory memory_;
    SegmentCursor<ReserveSegment> cursor_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> alike_buffer_, iota_buffer_, value_buffer_, page_buffer_, scratch_buffer_;
    LocalTensor<int32_t> iota_, values_, pages_, scratch_;
    Piece pieces_[kReserveBatchPieces];
    Stretch stretches_[kReserveBatchPieces];
    AlikeRun runs_[kAlikeRuns];
    uint32_t num_pieces_ = 0;
    uint32_t num_stretches_ = 0;
    uint32_t used_ = 0;  // of values_
    uint32_t odd_ = 0;   // segments from the current one on that are not worked on as a run
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
    dsv4::kernel::preload_launch(15 * sizeof(GM_ADDR) + sizeof(ReserveExtendParams), 2);
    AscendC::TPipe pipe;
    const dsv4::kernel::PoolAddresses tables{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const dsv4::kernel::PoolAddresses slots{
        {full_slots, swa_slots, c4_slots, c128_slots, c4_state_slots, c128_state_slots}};
    dsv4::kernel::ReserveExtend op(&pipe, tables, free_pages, segments, slots, error_lanes, p);
    op.run();
}
