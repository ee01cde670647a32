// Walking a block's share of a segment list. The share's first and last segment are found by narrowing searches over the
// running totals that the segments carry, so that a block reads few segments beyond its own, in chunks that fit UB.
#pragma once

#include "common/launch_plan.h"
#include "common/page_segments.h"
#include "device/memory.h"
#include "device/pipes.h"

namespace dsv4::kernel {

constexpr uint32_t kChunkSegments = 1024;  // 32 KB
constexpr uint32_t kSearchWays = 32;       // parts into which one step of the search cuts a range

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
        list_ = global<int32_t>(segments, static_cast<uint64_t>(num_segments) * kSegmentFields);
    }

    // This block's share of the items of all segments.
    __aicore__ inline BlockShare share() {
        end_ = num_segments_;
        load_chunk(num_segments_ - 1);
        const Segment last = read(0);
        const int64_t items = static_cast<int64_t>(last.items_before) + (last.end - last.begin);
        return block_share(items, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    }

    // Makes the segment that holds item `begin` of the whole list the current one; the cursor may go on to that of item
    // `end` - 1.
    __aicore__ inline void seek(int64_t begin, int64_t end) {
        SegmentRange first{0, num_segments_};
        SegmentRange last{0, num_segments_};
        while (first.size() > 1 || last.size() > 1) {
            const uint32_t last_samples = first.begin == last.begin && first.end == last.end ? 0 : kSearchWays;
            order<AscendC::HardEvent::S_MTE2>();
            load_samples(first, 0);
            if (last_samples != 0) {
                load_samples(last, last_samples);
            }
            order<AscendC::HardEvent::MTE2_S>();
            first = narrowed(first, 0, begin);
            last = narrowed(last, last_samples, end - 1);
        }
        end_ = last.end;
        load_chunk(first.begin);
        current_ = 0;
    }

    // The part of the current segment from item `item` of the whole list on, up to item `end`.
    __aicore__ inline SegmentPiece<Segment> piece(int64_t item, int64_t end) {
        const Segment segment = read(current_);
        const int32_t begin = segment.begin + static_cast<int32_t>(item - segment.items_before);
        const int64_t items = min_of<int64_t>(segment.end - begin, end - item);
        return SegmentPiece<Segment>{segment, begin, begin + static_cast<int32_t>(items)};
    }

    // Goes on to the next segment when the piece was the last of its own.
    __aicore__ inline void pass(const SegmentPiece<Segment>& piece) {
        if (piece.end != piece.segment.end) {
            return;
        }
        ++current_;
        const uint32_t next = chunk_begin_ + current_;
        if (current_ == kChunkSegments && next < end_) {
            load_chunk(next);
            current_ = 0;
        }
    }

    // Index of the current segment in the list.
    __aicore__ inline uint32_t index() const { return chunk_begin_ + current_; }

 private:
    // Where an item's segment may be: [begin, end).
    struct SegmentRange {
        uint32_t begin;
        uint32_t end;

        __aicore__ inline uint32_t size() const { return end - begin; }
        __aicore__ inline uint32_t sample_distance() const { return ceil_div<uint32_t>(size(), kSearchWays); }
        __aicore__ inline uint32_t samples() const { return ceil_div<uint32_t>(size(), sample_distance()); }
    };

    // Running totals at equal distances in a range, each into a block of its own.
    __aicore__ inline void load_samples(const SegmentRange& range, uint32_t where) {
        const uint32_t fields = static_cast<uint32_t>(kSegmentFields);
        load_rows(words_[where * fields], list_[static_cast<uint64_t>(range.begin) * fields + kItemsBeforeField],
                  range.samples(), 1, range.sample_distance() * fields - 1, fields);
    }

    // The part of a range that begins with the last sample of at most `item` items before it.
    __aicore__ inline SegmentRange narrowed(const SegmentRange& range, uint32_t where, int64_t item) {
        uint32_t low = 0;
        uint32_t high = range.samples();
        while (high - low > 1) {
            const uint32_t middle = (low + high) / 2;
            if (words_.GetValue((where + middle) * static_cast<uint32_t>(kSegmentFields)) <= item) {
                low = middle;
            } else {
                high = middle;
            }
        }
        const uint32_t begin = range.begin + low * range.sample_distance();
        return SegmentRange{begin, min_of<uint32_t>(begin + range.sample_distance(), range.end)};
    }

    __aicore__ inline void load_chunk(uint32_t first) {
        const uint32_t elems = min_of<uint32_t>(kChunkSegments, end_ - first) * static_cast<uint32_t>(kSegmentFields);
        order<AscendC::HardEvent::S_MTE2>();
        load(words_, list_[static_cast<uint64_t>(first) * kSegmentFields], elems);
        order<AscendC::HardEvent::MTE2_S>();
        chunk_begin_ = first;
    }

    __aicore__ inline Segment read(uint32_t index) {
        Segment segment;
        int32_t* fields = reinterpret_cast<int32_t*>(&segment);
        for (uint32_t field = 0; field < kSegmentFields; ++field) {
            fields[field] = words_.GetValue(index * kSegmentFields + field);
        }
        return segment;
    }

    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<int32_t> words_;
    GlobalTensor<int32_t> list_;
    uint32_t num_segments_;
    uint32_t end_ = 0;  // no segment from here on is read
    uint32_t chunk_begin_ = 0;
    uint32_t current_ = 0;  // within the chunk
};

}  // namespace dsv4::kernel
