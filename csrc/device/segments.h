// Walking a block's share of a segment list, in chunks that fit UB. Where it begins stands behind the segments.
#pragma once

#include "common/launch_plan.h"
#include "common/page_segments.h"
#include "device/memory.h"
#include "device/pipes.h"

namespace dsv4::kernel {

constexpr uint32_t kChunkSegments = 1024;  // 32 KB

// Items [begin, end) of one segment: units, or pages, as the segment counts them.
template <typename Segment>
struct SegmentPiece {
    Segment segment;
    int32_t begin;
    int32_t end;

    __aicore__ inline int32_t items() const { return end - begin; }
};

template <typename Segment>
class SegmentCursor {
 public:
    __aicore__ inline SegmentCursor(AscendC::TPipe* pipe, GM_ADDR segments, int32_t num_segments)
        : num_segments_(static_cast<uint32_t>(num_segments)) {
        pipe->InitBuffer(buffer_, kChunkSegments * sizeof(Segment));
        words_ = buffer_.Get<int32_t>();
        pairs_ = buffer_.Get<int64_t>();
        list_ = global<int32_t>(segments, (static_cast<uint64_t>(num_segments) + kPartRows) * kSegmentFields);
    }

    // This block's share of the items of all segments, whole parts of the list. If there are any, the segment that holds
    // the first of them is the current one.
    __aicore__ inline BlockShare share() {
        const BlockShare parts = block_share(kListParts, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        const uint32_t count = static_cast<uint32_t>(parts.end - parts.begin);
        load(words_, list_[static_cast<uint64_t>(num_segments_) * kSegmentFields + kPartWords * parts.begin],
             kPartWords * (count + 1));
        order<AscendC::HardEvent::MTE2_S>();
        const uint32_t first = static_cast<uint32_t>(words_.GetValue(0));
        const BlockShare share{words_.GetValue(1), words_.GetValue(kPartWords * count + 1)};
        end_ = min_of<uint32_t>(num_segments_, static_cast<uint32_t>(words_.GetValue(kPartWords * count)) + 1);
        if (share.begin < share.end) {
            load_chunk(first);
        }
        return share;
    }

    // Two fields at a time: a load from UB stalls S whatever its width.
    __aicore__ inline Segment segment() const {
        const int64_t pairs[] = {pair(0, 0), pair(0, 1), pair(0, 2), pair(0, 3)};
        static_assert(sizeof(pairs) == sizeof(Segment));
        Segment segment;
        __builtin_memcpy(&segment, pairs, sizeof(segment));
        return segment;
    }

    // The part of the current segment from item `item` of the whole list on, up to item `end`.
    __aicore__ inline SegmentPiece<Segment> piece(int64_t item, int64_t end) const {
        return piece(segment(), item, end);
    }

    // The same of a segment that has been read.
    __aicore__ inline SegmentPiece<Segment> piece(const Segment& segment, int64_t item, int64_t end) const {
        const int32_t begin = segment.begin + static_cast<int32_t>(item - segment.items_before);
        const int64_t items = min_of<int64_t>(segment.end - begin, end - item);
        return SegmentPiece<Segment>{segment, begin, begin + static_cast<int32_t>(items)};
    }

    // Goes on to the next segment when the piece was the last of its own.
    __aicore__ inline void pass(const SegmentPiece<Segment>& piece) {
        if (piece.end == piece.segment.end) {
            next();
        }
    }

    __aicore__ inline void next() { skip(1); }

    // Index of the current segment in the list.
    __aicore__ inline uint32_t index() const { return chunk_begin_ + current_; }

    // The segments that are in UB, as they lie in the list; the current one's index among them; and how many there are
    // from it on.
    __aicore__ inline const LocalTensor<int32_t>& chunk() const { return words_; }
    __aicore__ inline uint32_t current() const { return current_; }
    __aicore__ inline uint32_t left() const { return min_of<uint32_t>(kChunkSegments, end_ - chunk_begin_) - current_; }

    // Two fields of the segment `ahead` segments after the current one.
    __aicore__ inline int64_t pair(uint32_t ahead, uint32_t number) const {
        constexpr uint32_t kPairs = sizeof(Segment) / sizeof(int64_t);
        return pairs_.GetValue((current_ + ahead) * kPairs + number);
    }

    // Goes on by so many segments.
    __aicore__ inline void skip(uint32_t count) {
        current_ += count;
        const uint32_t next = chunk_begin_ + current_;
        if (current_ == kChunkSegments && next < end_) {
            load_chunk(next);
        }
    }

 private:
    static constexpr uint32_t kPartWords = sizeof(ListPart) / sizeof(int32_t);

    __aicore__ inline void load_chunk(uint32_t first) {
        const uint32_t elems = min_of<uint32_t>(kChunkSegments, end_ - first) * static_cast<uint32_t>(kSegmentFields);
        order<AscendC::HardEvent::S_MTE2>();
        load(words_, list_[static_cast<uint64_t>(first) * kSegmentFields], elems);
        order<AscendC::HardEvent::MTE2_S>();
        chunk_begin_ = first;
        current_ = 0;
    }

    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<int32_t> words_;
    LocalTensor<int64_t> pairs_;
    GlobalTensor<int32_t> list_;
    uint32_t num_segments_;
    uint32_t end_ = 0;  // no segment from here on is read
    uint32_t chunk_begin_ = 0;
    uint32_t current_ = 0;  // within the chunk
};

}  // namespace dsv4::kernel
