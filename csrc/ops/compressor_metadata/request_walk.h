// The requests of compressor_metadata as a device kernel reads them: in chunks, because there may be more than fit UB. A
// block walks over all of them once, to learn how many groups there are, and once more near its share.
#pragma once

#include "device/errors.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "ops/compressor_metadata/compressor_metadata_index.h"

namespace dsv4::kernel {

// Walks the requests in order: the groups of each, and the output row of the first one.
class RequestWalk {
  public:
    __aicore__ inline RequestWalk(AscendC::TPipe* pipe, GM_ADDR cu_seqlens, GM_ADDR start_pos,
                                  const CompressorMetadataParams& p, ErrorLane* errors)
        : p_(p), cu_seqlens_(cu_seqlens), start_pos_(start_pos), errors_(errors) {
        pipe->InitBuffer(buffer_, kRequestChunkBytes);
    }

    // Where a walk stands.
    struct Place {
        int64_t request;
        int64_t row;
        CompletedGroups groups;
    };

    // Groups of all requests; remembers the walk at equal distances.
    __aicore__ inline int64_t survey() {
        mark_requests_ = ceil_div<int64_t>(p_.num_reqs, kMarks);
        Place place{0, 0, groups_of(0)};
        do {
            marks_[num_marks_++] = place.row;
            for (int64_t i = 0; i < mark_requests_ && !done(place); ++i) {
                advance(&place);
            }
        } while (!done(place));
        return place.row;
    }

    // The request whose groups the output row `row` belongs to; the end of the walk if there is none.
    __aicore__ inline Place find(int64_t row) {
        int64_t mark = num_marks_ - 1;
        while (mark > 0 && marks_[mark] > row) {
            --mark;
        }
        const int64_t request = mark * mark_requests_;
        Place place{request, marks_[mark], groups_of(request)};
        while (!done(place) && place.row + place.groups.count <= row) {
            advance(&place);
        }
        return place;
    }

    __aicore__ inline bool done(const Place& place) const { return place.request >= p_.num_reqs; }

    __aicore__ inline void advance(Place* place) {
        place->row += place->groups.count;
        ++place->request;
        place->groups = groups_of(place->request);
    }

  private:
    __aicore__ inline CompletedGroups groups_of(int64_t request) {
        if (request >= p_.num_reqs) {
            return CompletedGroups{0, 0};
        }
        if (request < chunk_begin_ || request >= chunk_end_) {
            load_chunk(request);
        }
        const uint32_t index = static_cast<uint32_t>(request - chunk_begin_);
        const int64_t begin = index == last_index_ ? last_end_ : entry(kCuSeqlens, p_.cu_seqlens_is_int64, index);
        const int64_t end = entry(kCuSeqlens, p_.cu_seqlens_is_int64, index + 1);
        const int64_t start = entry(kStartPos, p_.start_pos_is_int64, index);
        last_index_ = index + 1;
        last_end_ = end;
        const int32_t fault = request_fault(begin, end, start);
        if (fault != kRequestValid) {
            errors_->report(fault, request, fault == kStartTooLarge ? start : end);
            return CompletedGroups{0, 0};
        }
        return completed_groups(start, end - begin, p_.ratio);
    }

    __aicore__ inline void load_chunk(int64_t request) {
        chunk_begin_ = request / kRequestChunk * kRequestChunk;
        chunk_end_ = min_of<int64_t>(chunk_begin_ + kRequestChunk, p_.num_reqs);
        last_index_ = kNoIndex;
        const uint32_t count = static_cast<uint32_t>(chunk_end_ - chunk_begin_);
        order<AscendC::HardEvent::S_MTE2>();
        load_entries(kCuSeqlens, cu_seqlens_, p_.cu_seqlens_is_int64, count + 1);
        load_entries(kStartPos, start_pos_, p_.start_pos_is_int64, count);
        order<AscendC::HardEvent::MTE2_S>();
    }

    __aicore__ inline void load_entries(uint32_t where, GM_ADDR from, int32_t is_int64, uint32_t count) {
        const LocalTensor<int64_t> to = buffer_.Get<int64_t>()[where];
        const uint64_t end = static_cast<uint64_t>(chunk_begin_) + count;
        if (is_int64 != 0) {
            load(to, global<int64_t>(from, end)[static_cast<uint64_t>(chunk_begin_)], count);
        } else {
            load(to.ReinterpretCast<int32_t>(), global<int32_t>(from, end)[static_cast<uint64_t>(chunk_begin_)], count);
        }
    }

    __aicore__ inline int64_t entry(uint32_t where, int32_t is_int64, uint32_t index) {
        const LocalTensor<int64_t> entries = buffer_.Get<int64_t>()[where];
        return is_int64 != 0 ? entries.GetValue(index)
                             : static_cast<int64_t>(entries.ReinterpretCast<int32_t>().GetValue(index));
    }

    // Where a chunk's entries begin in the buffer, in int64.
    static constexpr uint32_t kCuSeqlens = 0;
    static constexpr uint32_t kStartPos = static_cast<uint32_t>(kRequestChunk) + 8;
    static constexpr uint32_t kNoIndex = 0xffffffffu;
    static constexpr int64_t kMarks = 64;

    const CompressorMetadataParams& p_;
    GM_ADDR cu_seqlens_;
    GM_ADDR start_pos_;
    ErrorLane* errors_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    int64_t chunk_begin_ = 0;
    int64_t chunk_end_ = 0;
    // The end of the request read last begins the next one.
    uint32_t last_index_ = kNoIndex;
    int64_t last_end_ = 0;
    // Rows before every mark_requests_-th request.
    int64_t marks_[kMarks];
    int64_t num_marks_ = 0;
    int64_t mark_requests_ = 1;
};

}  // namespace dsv4::kernel
