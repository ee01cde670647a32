// The scan of a chunk of compressor_metadata's requests by V, if all of them are good: what S finds request by request.
#pragma once

#include "device/iota.h"
#include "device/lane_scan.h"
#include "ops/compressor_metadata/compressor_metadata_index.h"

namespace dsv4::kernel {

// The inputs of a chunk; offsets have an entry more.
struct RequestInputs {
    RowValues requests, start_pos, cu_seqlens;
};

// What is known of each of a chunk's requests: the groups that those before it in the chunk bring, of which there is an
// entry more; its first group; its row of the block table.
struct ScannedRequests {
    LocalTensor<int32_t> groups_before, first_groups, table_rows;
};

class RequestScan {
  public:
    // iota: kRequestArrayElems. scratch: for a scan with kRequestScanAreas.
    __aicore__ inline void init(const CompressorMetadataParams& p, const LocalTensor<int32_t>& iota,
                                const LocalTensor<int32_t>& scratch) {
        p_ = &p;
        iota_ = iota;
        lanes_.init(iota, scratch);
        most_rows_ = min_of(kMostScannedLength, p.block_rows);
        possible_ = p.ratio_shift >= 0 && p.num_reqs <= kMostScannedLength;
    }

    __aicore__ inline void prepare() const { fill_iota(iota_, static_cast<uint32_t>(kRequestArrayElems)); }

    // Requests [first, first + n), whose inputs have been fetched for V; false: their arrays mean nothing. S may read and
    // write the arrays afterwards.
    __aicore__ inline bool chunk(int64_t first, uint32_t n, const RequestInputs& inputs, const ScannedRequests& to) {
        if (!possible_) {
            return false;
        }
        lanes_.begin(n);
        lanes_.take(starts(), inputs.cu_seqlens, 1, kMostScannedLength);
        lanes_.take(to.table_rows, inputs.cu_seqlens, 0, kMostScannedLength);
        AscendC::Sub(starts(), starts(), to.table_rows, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        lanes_.take_within(ends(), starts(), kMostScannedTokens);
        count(inputs, to);
        take_table_rows(first, inputs, to.table_rows);
        return lanes_.all_good();
    }

  private:
    // New tokens of each request, then where they end, then in how many groups.
    __aicore__ inline LocalTensor<int32_t> ends() const { return lanes_.area(0); }
    __aicore__ inline LocalTensor<int32_t> starts() const { return lanes_.area(1); }
    __aicore__ inline LocalTensor<int32_t> live() const { return lanes_.area(2); }

    // completed_groups
    __aicore__ inline void count(const RequestInputs& inputs, const ScannedRequests& to) const {
        lanes_.take_if_positive(starts(), live(), inputs.start_pos, kMostScannedLength);
        AscendC::Add(ends(), ends(), starts(), lanes_.rows());
        AscendC::ShiftRight(to.first_groups, starts(), p_->ratio_shift, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftRight(ends(), ends(), p_->ratio_shift, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(ends(), ends(), to.first_groups, lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(lanes_.addends(), ends(), live(), lanes_.rows());
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(live(), lanes_.addends(), int32_t{1}, lanes_.rows());
        lanes_.add_up(to.groups_before, 0);
    }

    // Requests without groups may have any; 0 stands for it.
    __aicore__ inline void take_table_rows(int64_t first, const RequestInputs& inputs, const LocalTensor<int32_t>& to) const {
        if (p_->has_requests != 0) {
            lanes_.take_live(to, inputs.requests, live(), most_rows_ - 1);
        } else {
            AscendC::Adds(ends(), iota_, static_cast<int32_t>(first), lanes_.rows());
            AscendC::PipeBarrier<PIPE_V>();
            lanes_.take_live_within(to, ends(), live(), most_rows_ - 1);
        }
    }

    const CompressorMetadataParams* p_ = nullptr;
    LocalTensor<int32_t> iota_;
    LaneScan<kRequestChunk, kRequestScanAreas> lanes_;
    int64_t most_rows_ = 0;  // of the block table; a request with a later one is for S, good or bad
    bool possible_ = false;
};

}  // namespace dsv4::kernel
