// Walking a block's share of a segment list. A list may be longer than UB: it is read in chunks, and the share's first
// segment is found by two binary searches over the running totals that the segments carry.
#pragma once

#include "common/page_segments.h"
#include "device/memory.h"
#include "device/pipes.h"

namespace dsv4::kernel {

constexpr uint32_t kChunkSegments = 1024;  // 32 KB

template <typename Segment>
class SegmentCursor {
 public:
    __aicore__ inline SegmentCursor(AscendC::TPipe* pipe, GM_ADDR segments, int32_t num_segments)
        : num_segments_(static_cast<uint32_t>(num_segments)) {
        pipe->InitBuffer(buffer_, kChunkSegments * sizeof(Segment));
        words_ = buffer_.Get<int32_t>();
        list_ = global<int32_t>(segments, static_cast<uint64_t>(num_segments) * kSegmentFields);
    }

    // Units of all segments together.
    __aicore__ inline int64_t total_units() {
        load_chunk(num_segments_ - 1, 1, 1);
        const Segment last = read(0);
        return static_cast<int64_t>(last.units_before) + (last.end_unit - last.begin_unit);
    }

    // Makes the segment that holds unit `unit` of the whole list the current one.
    __aicore__ inline void seek(int64_t unit) {
        const uint32_t stride = ceil_div<uint32_t>(num_segments_, kChunkSegments);
        load_chunk(0, ceil_div<uint32_t>(num_segments_, stride), stride);
        const uint32_t first = find(unit) * stride;
        load_chunk(first, min_of<uint32_t>(kChunkSegments, num_segments_ - first), 1);
        current_ = find(unit);
    }

    __aicore__ inline Segment current() { return read(current_); }

    __aicore__ inline void advance() {
        if (++current_ == loaded_ && chunk_begin_ + current_ < num_segments_) {
            const uint32_t first = chunk_begin_ + current_;
            load_chunk(first, min_of<uint32_t>(kChunkSegments, num_segments_ - first), 1);
            current_ = 0;
        }
    }

    // Index of the current segment in the list.
    __aicore__ inline uint32_t index() const { return chunk_begin_ + current_; }

 private:
    __aicore__ inline void load_chunk(uint32_t first, uint32_t count, uint32_t stride) {
        order<AscendC::HardEvent::S_MTE2>();
        const uint32_t fields = static_cast<uint32_t>(kSegmentFields);
        for (uint32_t done = 0; done < count; done += kMaxCopyBlocks) {
            const uint32_t rows = min_of<uint32_t>(count - done, kMaxCopyBlocks);
            load_rows(words_[done * fields], list_[static_cast<uint64_t>(first + done * stride) * fields], rows, fields,
                      (stride - 1) * fields, fields);
        }
        order<AscendC::HardEvent::MTE2_S>();
        chunk_begin_ = first;
        loaded_ = count;
    }

    // The last loaded segment with at most `unit` units before it.
    __aicore__ inline uint32_t find(int64_t unit) {
        uint32_t low = 0;
        uint32_t high = loaded_;
        while (high - low > 1) {
            const uint32_t middle = (low + high) / 2;
            if (words_.GetValue(middle * kSegmentFields + kUnitsBeforeField) <= unit) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return low;
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
    uint32_t chunk_begin_ = 0;
    uint32_t loaded_ = 0;
    uint32_t current_ = 0;  // within the chunk
};

}  // namespace dsv4::kernel
