// The rows of a step in UB, as device/step_scan.h finds them, and what the stages of the kernel share.
#pragma once

#include "device/errors.h"
#include "device/iota.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "ops/step/step_stages.h"

namespace dsv4::kernel {

constexpr int32_t kNoRequest = -1;

class StepRows {
  public:
    __aicore__ inline StepRows(AscendC::TPipe* pipe, GM_ADDR error_lanes, const StepParams& step)
        : step_(step),
          p_(step.rows),
          work_(block_work(step, AscendC::GetBlockIdx(), AscendC::GetBlockNum())),
          errors_(pipe, error_lanes, kErrorOpStep) {
        array_elems_ = static_cast<uint32_t>(row_array_elems(p_.num_rows));
        pipe->InitBuffer(array_buffer_, static_cast<uint32_t>(kRowArrays) * array_elems_ * sizeof(int32_t));
        for (uint32_t index = 0; index < static_cast<uint32_t>(kRowArrays); ++index) {
            arrays_[index] = array_buffer_.Get<int32_t>()[index * array_elems_];
        }
        pipe->InitBuffer(iota_buffer_, kTileEntries * sizeof(int32_t));
        pipe->InitBuffer(scratch_buffer_, (has_lasting_scratch(step) ? 2 : 1) * kScratchElems * sizeof(int32_t));
        fill_iota(iota(), kTileEntries);
    }

    // Call between two stages that use the scratch: what the next one is given uses it after the one before has. S does
    // not wait, but goes on to give.
    __aicore__ inline void next_stage() const {
        order<AscendC::HardEvent::MTE3_V>();
        order<AscendC::HardEvent::MTE3_MTE2>();
        order<AscendC::HardEvent::V_MTE2>();
        AscendC::PipeBarrier<PIPE_V>();
    }

    // What S has read and written so far comes before what other pipes are given from here on.
    __aicore__ inline void settle() const {
        order<AscendC::HardEvent::S_V>();
        order<AscendC::HardEvent::S_MTE2>();
        order<AscendC::HardEvent::S_MTE3>();
    }

    // UB for what lasts beside the stages, as large as the scratch if there is room; otherwise the scratch, which is
    // free before the first of them.
    __aicore__ inline LocalTensor<int32_t> lasting_scratch() {
        return has_lasting_scratch(step_) ? scratch()[static_cast<uint32_t>(kScratchElems)] : scratch();
    }

    // Whether this block has part in any of some stages.
    __aicore__ inline bool has_part(int32_t first, int32_t last) const {
        return dsv4::has_part(step_, first, last, work_);
    }

    // This block's part of a stage's work.
    __aicore__ inline StagePart part(int32_t stage) const { return stage_part(step_, stage, work_); }

    // Whether this block has to know how many groups the rows before each row complete.
    __aicore__ inline bool counts_groups() const { return dsv4::counts_groups(step_, work_); }

    __aicore__ inline StepRow row(int64_t index) {
        const uint32_t i = static_cast<uint32_t>(index);
        return StepRow{starts().GetValue(i), counts().GetValue(i), 0};
    }

    __aicore__ inline int64_t start(int64_t index) const { return starts().GetValue(static_cast<uint32_t>(index)); }
    // kNoRequest of a row of padding.
    __aicore__ inline int64_t request(int64_t index) const { return requests().GetValue(static_cast<uint32_t>(index)); }

    // int32 [num_rows]
    __aicore__ inline const LocalTensor<int32_t>& starts() const { return array(0); }
    __aicore__ inline const LocalTensor<int32_t>& counts() const { return array(1); }
    __aicore__ inline const LocalTensor<int32_t>& requests() const { return array(2); }

    // Tokens (shift 0) or groups of 1 << shift tokens before each row, int32 [num_rows + 1].
    __aicore__ inline const LocalTensor<int32_t>& prefix(int32_t shift) const {
        return array(shift == 0 ? 3 : shift == kShiftC4 ? 4 : 5);
    }

    // Of all rows.
    __aicore__ inline int64_t total(int32_t shift) const {
        return prefix(shift).GetValue(static_cast<uint32_t>(p_.num_rows));
    }

    __aicore__ inline LocalTensor<int32_t> iota() { return iota_buffer_.Get<int32_t>(); }
    __aicore__ inline LocalTensor<int32_t> scratch() { return scratch_buffer_.Get<int32_t>(); }
    __aicore__ inline ErrorLane& errors() { return errors_; }
    __aicore__ inline const StepRowsParams& params() const { return p_; }
    __aicore__ inline const StepParams& step() const { return step_; }

  private:
    __aicore__ inline const LocalTensor<int32_t>& array(uint32_t index) const { return arrays_[index]; }

    const StepParams& step_;
    const StepRowsParams& p_;
    BlockShare work_;
    ErrorLane errors_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> array_buffer_, iota_buffer_, scratch_buffer_;
    LocalTensor<int32_t> arrays_[kRowArrays];
    uint32_t array_elems_;
};

}  // namespace dsv4::kernel
