#include "device/errors.h"
#include "device/pools.h"
#include "device/preload.h"
#include "device/segments.h"
#include "kernel_operator.h"
#include "ops/release_pages/release_pages_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of all pages, cuts it into pieces of one segment each and works on a batch of pieces at
// a time: MTE2 fetches the page ids that are given back, MTE3 writes them to the rings and clears the entries.
class ReleasePages {
 public:
    __aicore__ inline ReleasePages(AscendC::TPipe* pipe, const PoolAddresses& tables, GM_ADDR free_pages,
                                   GM_ADDR segments, GM_ADDR error_lanes, const ReleasePagesParams& p)
        : p_(p),
          tables_(tables),
          cursor_(pipe, segments, p.num_segments),
          errors_(pipe, error_lanes, kErrorOpReleasePages) {
        free_pages_ = global<int32_t>(free_pages, static_cast<uint64_t>(ring_entries(p.pools)));
        pipe->InitBuffer(zero_buffer_, kReleasePiecePages * sizeof(int32_t));
        pipe->InitBuffer(page_buffer_, kReleaseBatchPages * sizeof(int32_t));
        zeros_ = zero_buffer_.Get<int32_t>();
        pages_ = page_buffer_.Get<int32_t>();
    }

    __aicore__ inline void run() {
        const BlockShare share = cursor_.share();
        if (share.begin < share.end) {
            AscendC::Duplicate(zeros_, int32_t{0}, kReleasePiecePages);
            order<HardEvent::V_MTE3>();
            for (int64_t page = share.begin; page < share.end;) {
                page = batch(page, share.end);
            }
        }
        errors_.flush();
    }

 private:
    struct Piece {
        ReleaseSegment segment;
        int32_t begin;
        uint32_t num_pages;
        uint32_t area;  // where its page ids lie in pages_
    };

    // Works on pieces from `page` of the whole list on; returns the first page that is left.
    __aicore__ inline int64_t batch(int64_t page, int64_t end) {
        uint32_t used = 0;
        num_pieces_ = 0;
        while (page < end && num_pieces_ < kReleaseBatchPieces) {
            SegmentPiece<ReleaseSegment> piece = cursor_.piece(page, end);
            const int32_t fault = release_fault(piece.segment, p_);
            if (fault == kReleaseValid) {
                piece.end = piece.begin + release_piece_pages(piece.segment, piece.begin, piece.end, p_.pools);
                const uint32_t pages = static_cast<uint32_t>(piece.items());
                if (used + pages > kReleaseBatchPages) {
                    break;
                }
                pieces_[num_pieces_++] = Piece{piece.segment, piece.begin, pages, used};
                used += round_up<uint32_t>(pages, kUbBlockBytes / sizeof(int32_t));
            } else {
                errors_.report(fault, cursor_.index(), piece.segment.request);
            }
            page += piece.items();
            cursor_.pass(piece);
        }
        fetch();
        write();
        return page;
    }

    __aicore__ inline GlobalTensor<int32_t> table(const Piece& piece) {
        const ReleaseSegment& s = piece.segment;
        return tables_.tensor(
            s.pool, table_elems(s.pool, p_.pools))[page_entry_elems(s.pool, s.request, piece.begin, p_.pools)];
    }

    __aicore__ inline void fetch() {
        order<HardEvent::MTE3_MTE2>();
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            if (pieces_[i].segment.ring_position != kKeepPage) {
                load(pages_[pieces_[i].area], table(pieces_[i]), pieces_[i].num_pages);
            }
        }
        order<HardEvent::MTE2_MTE3>();
    }

    __aicore__ inline void write() {
        for (uint32_t i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            if (piece.segment.ring_position != kKeepPage) {
                store(free_pages_[freed_page_elems(piece.segment, piece.begin, p_.pools)], pages_[piece.area],
                      piece.num_pages);
            }
            store(table(piece), zeros_, piece.num_pages);
        }
    }

    const ReleasePagesParams& p_;
    const PoolAddresses& tables_;
    GlobalTensor<int32_t> free_pages_;
    SegmentCursor<ReleaseSegment> cursor_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> zero_buffer_, page_buffer_;
    LocalTensor<int32_t> zeros_, pages_;
    Piece pieces_[kReleaseBatchPieces];
    uint32_t num_pieces_ = 0;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void release_pages(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                    GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                    GM_ADDR c128_state_table, GM_ADDR free_pages, GM_ADDR segments,
                                                    GM_ADDR error_lanes, ReleasePagesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(9 * sizeof(GM_ADDR) + sizeof(ReleasePagesParams), 1);
    AscendC::TPipe pipe;
    const dsv4::kernel::PoolAddresses tables{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    dsv4::kernel::ReleasePages op(&pipe, tables, free_pages, segments, error_lanes, p);
    op.run();
}
