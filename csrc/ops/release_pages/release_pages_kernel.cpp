#include "kernel_operator.h"

#include "device/errors.h"
#include "device/iota.h"
#include "device/pools.h"
#include "device/segments.h"
#include "ops/release_pages/release_pages_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// A block takes an equal share of all units and owns the pages that start in it: it reads their ids from the first entry
// of each page, writes them to the ring, and then clears the entries.
class ReleasePages {
 public:
    __aicore__ inline ReleasePages(AscendC::TPipe* pipe, const PoolAddresses& tables, GM_ADDR free_pages,
                                   GM_ADDR segments, GM_ADDR error_lanes, const ReleasePagesParams& p)
        : p_(p),
          tables_(tables),
          cursor_(pipe, segments, p.num_segments),
          errors_(pipe, error_lanes, kErrorOpReleasePages) {
        free_pages_ = global<int32_t>(free_pages, static_cast<uint64_t>(ring_entries(p.num_pages)));
        pipe->InitBuffer(zero_buffer_, kReleaseZeroUnits * sizeof(int32_t));
        pipe->InitBuffer(slot_buffer_, kReleasePiecePages * kUbBlockBytes);
        pipe->InitBuffer(page_buffer_, kReleasePiecePages * sizeof(int32_t));
        pipe->InitBuffer(offset_buffer_, kReleasePiecePages * sizeof(int32_t));
        zeros_ = zero_buffer_.Get<int32_t>();
        first_slots_ = slot_buffer_.Get<int32_t>();
        page_ids_ = page_buffer_.Get<int32_t>();
        block_offsets_bytes_ = offset_buffer_.Get<int32_t>();
    }

    __aicore__ inline void run() {
        const BlockShare share = cursor_.share();
        if (share.begin < share.end) {
            prepare();
            cursor_.seek(share.begin, share.end);
            int64_t unit = share.begin;
            while (unit < share.end) {
                const SegmentPiece<ReleaseSegment> piece = cursor_.piece(unit, share.end);
                const int32_t fault = release_fault(piece.segment, p_);
                if (fault == kReleaseValid) {
                    release(piece.segment, piece.begin, piece.end);
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
    // Zeros to store, and where the first element of each 32-byte block lies.
    __aicore__ inline void prepare() {
        AscendC::Duplicate(zeros_, int32_t{0}, static_cast<int32_t>(kReleaseZeroUnits));
        fill_iota(block_offsets_bytes_, kReleasePiecePages);
        AscendC::Muls(block_offsets_bytes_, block_offsets_bytes_, static_cast<int32_t>(kUbBlockBytes),
                      static_cast<int32_t>(kReleasePiecePages));
        order<HardEvent::V_MTE3>();
    }

    __aicore__ inline GlobalTensor<int32_t> table(const ReleaseSegment& s, int64_t unit) {
        return tables_.tensor(s.pool, p_.max_requests * p_.row_elems[s.pool])[table_offset_elems(s, unit, p_)];
    }

    __aicore__ inline void release(const ReleaseSegment& s, int32_t begin, int32_t end) {
        if (s.ring_position != kKeepPage) {
            for (int64_t unit = page_start_from(begin, p_.page_shift); unit < end;) {
                const int64_t pages = release_piece_pages(s, unit, end, p_);
                give_back(s, unit, static_cast<uint32_t>(pages));
                unit += pages << p_.page_shift;
            }
        }
        for (int32_t unit = begin; unit < end; unit += kReleaseZeroUnits) {
            store(table(s, unit), zeros_, min_of<int32_t>(kReleaseZeroUnits, end - unit));
        }
    }

    // The pages whose first units are `unit` and every P-th one after it.
    __aicore__ inline void give_back(const ReleaseSegment& s, int64_t unit, uint32_t pages) {
        order<HardEvent::V_MTE2>();
        load_rows(first_slots_, table(s, unit), pages, 1, (1u << p_.page_shift) - 1, kUbBlockBytes / sizeof(int32_t));
        order<HardEvent::MTE2_V>();
        order<HardEvent::MTE3_V>();
        AscendC::Gather(page_ids_, first_slots_, block_offsets_bytes_.ReinterpretCast<uint32_t>(), uint32_t{0}, pages);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftRight(page_ids_, page_ids_, p_.page_shift, static_cast<int32_t>(pages));
        order<HardEvent::V_MTE3>();
        store(free_pages_[freed_page_offset_elems(s, unit, p_)], page_ids_, pages);
    }

    const ReleasePagesParams& p_;
    const PoolAddresses& tables_;
    GlobalTensor<int32_t> free_pages_;
    SegmentCursor<ReleaseSegment> cursor_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> zero_buffer_, slot_buffer_, page_buffer_, offset_buffer_;
    LocalTensor<int32_t> zeros_, first_slots_, page_ids_, block_offsets_bytes_;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void release_pages(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                    GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                    GM_ADDR c128_state_table, GM_ADDR free_pages, GM_ADDR segments,
                                                    GM_ADDR error_lanes, ReleasePagesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    const dsv4::kernel::PoolAddresses tables{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    dsv4::kernel::ReleasePages op(&pipe, tables, free_pages, segments, error_lanes, p);
    op.run();
}
