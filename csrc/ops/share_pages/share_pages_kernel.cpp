#include "kernel_operator.h"

#include "device/errors.h"
#include "device/iota.h"
#include "device/pools.h"
#include "device/segments.h"
#include "ops/share_pages/share_pages_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of all units, a piece of one segment at a time: slots of shared pages go from one row of
// a table to another, or to several rows that follow each other in the list, those of a copy are made from the page that
// the ring gives. The block that has the first unit of a copy also writes its two pages to the lists.
class SharePages {
 public:
    __aicore__ inline SharePages(AscendC::TPipe* pipe, const PoolAddresses& tables, GM_ADDR free_pages,
                                 GM_ADDR segments, GM_ADDR source_pages, GM_ADDR destination_pages,
                                 GM_ADDR error_lanes, const SharePagesParams& p)
        : p_(p), tables_(tables), cursor_(pipe, segments, p.num_segments), errors_(pipe, error_lanes, kErrorOpSharePages) {
        free_pages_ = global<int32_t>(free_pages, static_cast<uint64_t>(ring_entries(p.num_pages)));
        source_pages_ = global<int32_t>(source_pages, static_cast<uint64_t>(p.num_copies));
        destination_pages_ = global<int32_t>(destination_pages, static_cast<uint64_t>(p.num_copies));
        pipe->InitBuffer(iota_buffer_, kSharePieceUnits * sizeof(int32_t));
        pipe->InitBuffer(slot_buffer_, kSharePieceUnits * sizeof(int32_t));
        pipe->InitBuffer(page_buffer_, 2 * kUbBlockBytes);
        iota_ = iota_buffer_.Get<int32_t>();
        slots_ = slot_buffer_.Get<int32_t>();
        source_page_ = page_buffer_.Get<int32_t>();
        copy_page_ = source_page_[static_cast<uint32_t>(kUbBlockBytes / sizeof(int32_t))];
    }

    __aicore__ inline void run() {
        const BlockShare share = cursor_.share();
        if (share.begin < share.end) {
            fill_iota(iota_, kSharePieceUnits);
            cursor_.seek(share.begin, share.end);
            for (int64_t unit = share.begin; unit < share.end;) {
                const SegmentPiece<ShareSegment> piece = cursor_.piece(unit, share.end);
                const int32_t fault = share_fault(piece.segment, p_);
                if (fault != kShareValid) {
                    errors_.report(fault, cursor_.index(), piece.segment.request);
                } else if (is_copy(piece.segment)) {
                    copy(piece.segment, piece.begin, piece.end);
                } else {
                    take_over(piece.segment, piece.begin, piece.end);
                }
                unit += piece.units();
                cursor_.pass(piece);
            }
        }
        errors_.flush();
    }

 private:
    // Slots of a table that lie at the start of slots_.
    struct HeldSlots {
        int32_t pool;
        int64_t offset_elems;
        uint32_t units;

        __aicore__ inline bool contains(const HeldSlots& wanted) const {
            return pool == wanted.pool && offset_elems == wanted.offset_elems && units >= wanted.units;
        }
    };

    __aicore__ inline GlobalTensor<int32_t> table(const ShareSegment& s, int64_t offset_elems) {
        return tables_.tensor(s.pool, p_.max_requests * p_.row_elems[s.pool])[static_cast<uint64_t>(offset_elems)];
    }

    __aicore__ inline void take_over(const ShareSegment& s, int32_t begin, int32_t end) {
        for (int32_t unit = begin; unit < end; unit += kSharePieceUnits) {
            const uint32_t units = static_cast<uint32_t>(min_of<int32_t>(kSharePieceUnits, end - unit));
            const HeldSlots wanted{s.pool, source_offset_elems(s, unit, p_), units};
            if (!held_.contains(wanted)) {
                // A copy before has stored what V wrote to the slots.
                order<HardEvent::MTE3_MTE2>();
                load(slots_, table(s, wanted.offset_elems), units);
                order<HardEvent::MTE2_MTE3>();
                held_ = wanted;
            }
            store(table(s, target_offset_elems(s, unit, p_)), slots_, units);
        }
    }

    __aicore__ inline void copy(const ShareSegment& s, int32_t begin, int32_t end) {
        const int32_t page = fetch_pages(s, begin == s.begin_unit);
        held_.units = 0;
        for (int32_t unit = begin; unit < end; unit += kSharePieceUnits) {
            const int32_t units = min_of<int32_t>(kSharePieceUnits, end - unit);
            order<HardEvent::MTE3_V>();
            AscendC::Adds(slots_, iota_, static_cast<int32_t>(slot_of(page, unit, p_.page_shift)), units);
            order<HardEvent::V_MTE3>();
            store(table(s, target_offset_elems(s, unit, p_)), slots_, static_cast<uint32_t>(units));
        }
    }

    // Returns the page of the copy; lists both pages if asked.
    __aicore__ inline int32_t fetch_pages(const ShareSegment& s, bool lists) {
        order<HardEvent::MTE3_MTE2>();
        order<HardEvent::S_MTE2>();
        load(copy_page_, free_pages_[static_cast<uint64_t>(copy_page_offset_elems(s, p_))], 1);
        if (lists) {
            load(source_page_, table(s, source_offset_elems(s, s.begin_unit, p_)), 1);
        }
        order<HardEvent::MTE2_S>();
        if (lists) {
            source_page_.SetValue(0, static_cast<int32_t>(page_of(source_page_.GetValue(0), p_.page_shift)));
            order<HardEvent::S_MTE3>();
            store(source_pages_[static_cast<uint64_t>(s.copy)], source_page_, 1);
            store(destination_pages_[static_cast<uint64_t>(s.copy)], copy_page_, 1);
        }
        return copy_page_.GetValue(0);
    }

    const SharePagesParams& p_;
    const PoolAddresses& tables_;
    GlobalTensor<int32_t> free_pages_, source_pages_, destination_pages_;
    SegmentCursor<ShareSegment> cursor_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> iota_buffer_, slot_buffer_, page_buffer_;
    LocalTensor<int32_t> iota_, slots_, source_page_, copy_page_;
    HeldSlots held_{0, 0, 0};
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void share_pages(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                  GM_ADDR c128_table, GM_ADDR c4_state_table, GM_ADDR c128_state_table,
                                                  GM_ADDR free_pages, GM_ADDR segments, GM_ADDR source_pages,
                                                  GM_ADDR destination_pages, GM_ADDR error_lanes, SharePagesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    const dsv4::kernel::PoolAddresses tables{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    dsv4::kernel::SharePages op(&pipe, tables, free_pages, segments, source_pages, destination_pages, error_lanes, p);
    op.run();
}
