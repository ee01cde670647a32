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
    __aicore__ inline RequestWalk(AscendC::TPipe* pipe, const CompressorMetadataAddresses& memory,
                                  const CompressorMetadataParams& p, ErrorLane* errors)
        : p_(p), memory_(memory), errors_(errors) {
        pipe->InitBuffer(buffer_, kRequestChunkBytes);
    }

    // Where a walk stands.
    struct Place {
        int64_t request;
        int64_t row;
        CompletedGroups groups;
        int64_t table_row;  // of the block table, where there are groups
    };

    // Groups of all requests; remembers the walk at equal distances.
    __aicore__ inline int64_t survey() {
        mark_requests_ = ceil_div<int64_t>(p_.num_reqs, kMarks);
        Place place = place_of(0, 0);
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
        Place place = place_of(request, marks_[mark]);
        while (!done(place) && place.row + place.groups.count <= row) {
            advance(&place);
        }
        return place;
    }

    __aicore__ inline bool done(const Place& place) const { return place.request >= p_.num_reqs; }

    __aicore__ inline void advance(Place* place) {
        *place = place_of(place->request + 1, place->row + place->groups.count);
    }

  private:
    __aicore__ inline Place place_of(int64_t request, int64_t row) {
        if (request >= p_.num_reqs) {
            return Place{request, row, CompletedGroups{0, 0}, 0};
        }
        if (request < chunk_begin_ || request >= chunk_end_) {
            load_chunk(request);
        }
        const uint32_t index = static_cast<uint32_t>(request - chunk_begin_);
        const CompletedGroups groups = groups_of(request, index);
        const int64_t table_row = p_.has_requests != 0 ? entry(kRequests, p_.request_is_int64, index) : request;
        if (groups.count != 0 && !known_table_row(table_row, p_)) {
            errors_->report(kUnknownTableRow, request, table_row);
            return Place{request, row, CompletedGroups{0, 0}, 0};
        }
        return Place{request, row, groups, table_row};
    }

    // index: of the request in the chunk.
    __aicore__ inline CompletedGroups groups_of(int64_t request, uint32_t index) {
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
        return completed_groups(start, end - begin, p_);
    }

    __aicore__ inline void load_chunk(int64_t request) {
        chunk_begin_ = request / kRequestChunk * kRequestChunk;
        chunk_end_ = min_of<int64_t>(chunk_begin_ + kRequestChunk, p_.num_reqs);
        last_index_ = kNoIndex;
        const uint32_t count = static_cast<uint32_t>(chunk_end_ - chunk_begin_);
        order<AscendC::HardEvent::S_MTE2>();
        load_entries(kCuSeqlens, memory_.cu_seqlens, p_.cu_seqlens_is_int64, count + 1);
        load_entries(kStartPos, memory_.start_pos, p_.start_pos_is_int64, count);
        if (p_.has_requests != 0) {
            load_entries(kRequests, memory_.requests, p_.request_is_int64, count);
        }
        order<AscendC::HardEvent::MTE2_S>();
    }

    __aicore__ inline void load_entries(uint32_t where, uint64_t values, int32_t is_int64, uint32_t count) {
        GM_ADDR from = at(values);
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
    static constexpr uint32_t kRequests = 2 * static_cast<uint32_t>(kRequestChunk) + 8;
    static constexpr uint32_t kNoIndex = 0xffffffffu;
    static constexpr int64_t kMarks = 64;

    const CompressorMetadataParams& p_;
    const CompressorMetadataAddresses& memory_;
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
