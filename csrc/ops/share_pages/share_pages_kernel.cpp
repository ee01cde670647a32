#include "device/errors.h"
#include "device/pools.h"
#include "device/preload.h"
#include "device/segments.h"
#include "kernel_operator.h"
#include "ops/share_pages/share_pages_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of all pages, a piece of one segment at a time: ids of shared pages go from one row of a
// table to another, or to several rows that follow each other in the list; the page of a copy comes from the ring, and
// both are listed.
class SharePages {
 public:
    __aicore__ inline SharePages(AscendC::TPipe* pipe, const PoolAddresses& tables, GM_ADDR free_pages,
                                 GM_ADDR segments, GM_ADDR source_pages, GM_ADDR destination_pages,
                                 GM_ADDR error_lanes, const SharePagesParams& p)
        : p_(p),
          tables_(tables),
          cursor_(pipe, segments, p.num_segments),
          errors_(pipe, error_lanes, kErrorOpSharePages) {
        free_pages_ = global<int32_t>(free_pages, static_cast<uint64_t>(ring_entries(p.pools)));
        source_pages_ = global<int32_t>(source_pages, static_cast<uint64_t>(p.num_copies));
        destination_pages_ = global<int32_t>(destination_pages, static_cast<uint64_t>(p.num_copies));
        pipe->InitBuffer(page_buffer_, kSharePiecePages * sizeof(int32_t));
        pipe->InitBuffer(copy_buffer_, 2 * kUbBlockBytes);
        pages_ = page_buffer_.Get<int32_t>();
        source_page_ = copy_buffer_.Get<int32_t>();
        copy_page_ = source_page_[static_cast<uint32_t>(kUbBlockBytes / sizeof(int32_t))];
    }

    __aicore__ inline void run() {
        const BlockShare share = cursor_.share();
        if (share.begin < share.end) {
            for (int64_t page = share.begin; page < share.end;) {
                const SegmentPiece<ShareSegment> piece = cursor_.piece(page, share.end);
                const int32_t fault = share_fault(piece.segment, p_);
                if (fault != kShareValid) {
                    errors_.report(fault, cursor_.index(), piece.segment.request);
                } else if (is_copy(piece.segment)) {
                    copy(piece.segment);
                } else {
                    take_over(piece.segment, piece.begin, piece.end);
                }
                page += piece.items();
                cursor_.pass(piece);
            }
        }
        errors_.flush();
    }

 private:
    // Which entries pages_ holds.
    struct HeldPages {
        int32_t pool;
        int64_t offset_elems;
        uint32_t count;

        __aicore__ inline bool contains(const HeldPages& wanted) const {
            return pool == wanted.pool && offset_elems == wanted.offset_elems && count >= wanted.count;
        }
    };

    __aicore__ inline GlobalTensor<int32_t> table(const ShareSegment& s, int64_t offset_elems) {
        return tables_.tensor(s.pool, table_elems(s.pool, p_.pools))[static_cast<uint64_t>(offset_elems)];
    }

    __aicore__ inline void take_over(const ShareSegment& s, int32_t begin, int32_t end) {
        for (int64_t page = begin; page < end;) {
            const int64_t contiguous = min_of(pages_before_last_column(s.pool, page, p_.pools), end - page);
            const HeldPages wanted{s.pool, source_elems(s, page, p_.pools),
                                   static_cast<uint32_t>(min_of<int64_t>(kSharePiecePages, contiguous))};
            if (!held_.contains(wanted)) {
                order<HardEvent::MTE3_MTE2>();
                load(pages_, table(s, wanted.offset_elems), wanted.count);
                order<HardEvent::MTE2_MTE3>();
                held_ = wanted;
            }
            store(table(s, target_elems(s, page, p_.pools)), pages_, wanted.count);
            page += wanted.count;
        }
    }

    __aicore__ inline void copy(const ShareSegment& s) {
        order<HardEvent::MTE3_MTE2>();
        load(copy_page_, free_pages_[static_cast<uint64_t>(copy_page_elems(s, p_.pools))], 1);
        load(source_page_, table(s, source_elems(s, s.begin, p_.pools)), 1);
        order<HardEvent::MTE2_MTE3>();
        store(table(s, target_elems(s, s.begin, p_.pools)), copy_page_, 1);
        store(source_pages_[static_cast<uint64_t>(s.copy)], source_page_, 1);
        store(destination_pages_[static_cast<uint64_t>(s.copy)], copy_page_, 1);
    }

    const SharePagesParams& p_;
    const PoolAddresses& tables_;
    GlobalTensor<int32_t> free_pages_, source_pages_, destination_pages_;
    SegmentCursor<ShareSegment> cursor_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> page_buffer_, copy_buffer_;
    LocalTensor<int32_t> pages_, source_page_, copy_page_;
    HeldPages held_{0, 0, 0};
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void share_pages(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                  GM_ADDR c128_table, GM_ADDR c4_state_table, GM_ADDR c128_state_table,
                                                  GM_ADDR free_pages, GM_ADDR segments, GM_ADDR source_pages,
                                                  GM_ADDR destination_pages, GM_ADDR error_lanes, SharePagesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(11 * sizeof(GM_ADDR) + sizeof(SharePagesParams), 1);
    AscendC::TPipe pipe;
    const dsv4::kernel::PoolAddresses tables{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    dsv4::kernel::SharePages op(&pipe, tables, free_pages, segments, source_pages, destination_pages, error_lanes, p);
    op.run();
}
