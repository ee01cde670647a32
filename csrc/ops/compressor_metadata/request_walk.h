// The requests of compressor_metadata as a device kernel reads them: in chunks, because there may be more than fit UB. A
// block scans all chunks once, to learn how many groups there are, and those of its share again if they are not the last.
#pragma once

#include "device/errors.h"
#include "ops/compressor_metadata/request_scan.h"

namespace dsv4::kernel {

// Walks the requests that bring groups, in order.
class RequestWalk {
  public:
    __aicore__ inline RequestWalk(AscendC::TPipe* pipe, const CompressorMetadataAddresses& memory,
                                  const CompressorMetadataParams& p, ErrorLane* errors)
        : p_(p), errors_(errors) {
        pipe->InitBuffer(buffer_, kRequestChunkBytes);
        constexpr uint32_t input_elems = kRequestChunk * 2;
        constexpr uint32_t array_elems = kRequestArrayElems;
        const LocalTensor<int32_t> memory_of_chunk = buffer_.Get<int32_t>();
        inputs_.requests.init(at(memory.requests), p.num_reqs, p.request_is_int64, memory_of_chunk);
        inputs_.start_pos.init(at(memory.start_pos), p.num_reqs, p.start_pos_is_int64, memory_of_chunk[input_elems]);
        inputs_.cu_seqlens.init(at(memory.cu_seqlens), p.num_reqs + 1, p.cu_seqlens_is_int64,
                                memory_of_chunk[2 * input_elems]);
        const LocalTensor<int32_t> arrays = memory_of_chunk[static_cast<uint32_t>(kRequestInputElems)];
        chunk_ = ScannedRequests{arrays, arrays[array_elems], arrays[2 * array_elems]};
        scan_.init(p, arrays[3 * array_elems], arrays[4 * array_elems]);
    }

    // Where a walk stands.
    struct Place {
        int64_t request;
        int64_t row;  // of the outputs, where its first group belongs
        CompletedGroups groups;
        int64_t table_row;  // of the block table
        int64_t chunk_begin;
        int64_t chunk_row;
    };

    // Groups of all requests; remembers the walk at equal distances.
    __aicore__ inline int64_t survey() {
        const int64_t chunks = ceil_div<int64_t>(p_.num_reqs, kRequestChunk);
        mark_chunks_ = ceil_div<int64_t>(chunks, kMarks);
        int64_t row = 0;
        scan_.prepare();
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
            if (chunk % mark_chunks_ == 0) {
                marks_[num_marks_++] = row;
            }
            load(chunk * kRequestChunk, row);
            row = chunk_end_row();
        }
        return row;
    }

    // The request whose groups the output row `row` belongs to; the end of the walk if there is none.
    __aicore__ inline Place find(int64_t row) {
        int64_t mark = num_marks_ - 1;
        while (mark > 0 && marks_[mark] > row) {
            --mark;
        }
        if (mark < 0) {
            return end(0);
        }
        if (chunk_row_ > row) {
            load(mark * mark_chunks_ * kRequestChunk, marks_[mark]);
        }
        return find_from(0, row);
    }

    __aicore__ inline bool done(const Place& place) const { return place.request >= p_.num_reqs; }

    __aicore__ inline void advance(Place* place) {
        if (place->chunk_begin != chunk_begin_) {
            load(place->chunk_begin, place->chunk_row);
        }
        const uint32_t next = static_cast<uint32_t>(place->request - chunk_begin_) + 1;
        const int64_t row = place->row + place->groups.count;
        const int64_t before = row - chunk_row_;
        const int64_t after = next < chunk_size_ ? groups_before(next + 1) : before;
        *place = after > before ? place_of(next, before, after) : find_from(next, row);
    }

  private:
    __aicore__ inline Place end(int64_t row) const { return Place{p_.num_reqs, row, CompletedGroups{0, 0}, 0, 0, 0}; }

    __aicore__ inline int64_t groups_before(uint32_t index) const { return chunk_.groups_before.GetValue(index); }

    __aicore__ inline int64_t chunk_end_row() const { return chunk_row_ + groups_before(chunk_size_); }

    // The request that brings the group of output row `row`, from entry `low` of the chunk on, or in a later one.
    __aicore__ inline Place find_from(uint32_t low, int64_t row) {
        while (chunk_end_row() <= row) {
            const int64_t next = chunk_begin_ + chunk_size_;
            if (next >= p_.num_reqs) {
                return end(chunk_end_row());
            }
            load(next, chunk_end_row());
            low = 0;
        }
        uint32_t high = chunk_size_;
        while (high - low > 1) {
            const uint32_t middle = (low + high) / 2;
            if (chunk_row_ + groups_before(middle) <= row) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return place_of(low, groups_before(low), groups_before(low + 1));
    }

    // index: of the request in the chunk. before, after: groups of the requests before it, and with it.
    __aicore__ inline Place place_of(uint32_t index, int64_t before, int64_t after) const {
        return Place{chunk_begin_ + index,
                     chunk_row_ + before,
                     CompletedGroups{chunk_.first_groups.GetValue(index), after - before},
                     chunk_.table_rows.GetValue(index),
                     chunk_begin_,
                     chunk_row_};
    }

    // Reads a chunk of requests from `first` on. row: of the outputs, where their groups begin.
    __aicore__ inline void load(int64_t first, int64_t row) {
        chunk_begin_ = first;
        chunk_row_ = row;
        chunk_size_ = static_cast<uint32_t>(min_of<int64_t>(kRequestChunk, p_.num_reqs - first));
        order<AscendC::HardEvent::S_MTE2>();
        inputs_.cu_seqlens.load_chunk(first, chunk_size_ + 1);
        inputs_.start_pos.load_chunk(first, chunk_size_);
        if (p_.has_requests != 0) {
            inputs_.requests.load_chunk(first, chunk_size_);
        }
        // V too comes after this.
        order<AscendC::HardEvent::MTE2_S>();
        if (!scan_.chunk(first, chunk_size_, inputs_, chunk_)) {
            scan();
        }
    }

    __aicore__ inline void scan() {
        int64_t groups = 0;
        int64_t begin = inputs_.cu_seqlens.get(0);
        for (uint32_t i = 0; i < chunk_size_; ++i) {
            const int64_t end = inputs_.cu_seqlens.get(i + 1);
            const int64_t table_row = p_.has_requests != 0 ? inputs_.requests.get(i) : chunk_begin_ + i;
            const CompletedGroups own = admitted_groups(i, begin, end, table_row);
            chunk_.groups_before.SetValue(i, static_cast<int32_t>(min_of(groups, kInt32Max)));
            chunk_.first_groups.SetValue(i, static_cast<int32_t>(own.first));
            chunk_.table_rows.SetValue(i, static_cast<int32_t>(table_row));
            groups += own.count;
            begin = end;
        }
        chunk_.groups_before.SetValue(chunk_size_, static_cast<int32_t>(min_of(groups, kInt32Max)));
    }

    // None of a bad request.
    __aicore__ inline CompletedGroups admitted_groups(uint32_t index, int64_t begin, int64_t end, int64_t table_row) {
        const int64_t start = inputs_.start_pos.get(index);
        int32_t fault = request_fault(begin, end, start);
        if (fault != kRequestValid) {
            errors_->report(fault, chunk_begin_ + index, fault == kStartTooLarge ? start : end);
            return CompletedGroups{0, 0};
        }
        const CompletedGroups groups = completed_groups(start, end - begin, p_);
        if (groups.count != 0 && !known_table_row(table_row, p_)) {
            errors_->report(kUnknownTableRow, chunk_begin_ + index, table_row);
            return CompletedGroups{0, 0};
        }
        return groups;
    }

    static constexpr int64_t kMarks = 64;

    const CompressorMetadataParams& p_;
    ErrorLane* errors_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    RequestInputs inputs_;
    ScannedRequests chunk_;
    RequestScan scan_;
    int64_t chunk_begin_ = 0;
    int64_t chunk_row_ = 0;
    uint32_t chunk_size_ = 0;
    // Rows before every mark_chunks_-th chunk.
    int64_t marks_[kMarks];
    int64_t num_marks_ = 0;
    int64_t mark_chunks_ = 0;
};

}  // namespace dsv4::kernel
