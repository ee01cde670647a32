// The rows of a step in UB: every block reads the inputs of all rows and keeps what its stages need.
#pragma once

#include "ops/step/step_stages.h"
#include "device/errors.h"
#include "device/iota.h"
#include "device/row_scan.h"
#include "device/row_values.h"

namespace dsv4::kernel {

class StepRows {
  public:
    __aicore__ inline StepRows(AscendC::TPipe* pipe, const StepAddresses& memory, GM_ADDR error_lanes,
                               const StepParams& step)
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
        constexpr uint32_t input_elems = kChunkRows * 2;
        requests_.init(at(memory.requests), p_.num_rows, p_.request_is_int64, scratch());
        lengths_.init(at(memory.lengths), p_.num_rows, p_.length_is_int64, scratch()[input_elems]);
        // The last of them: a chunk of offsets has one entry more than there are rows.
        operands_.init(at(memory.operands), p_.num_rows + offsets(), p_.operand_is_int64, scratch()[2 * input_elems]);
        vector_scan_.init(step, iota(), scratch()[static_cast<uint32_t>(kRowInputElems)], counts_groups(step, work_));
    }

    // Fills the arrays. A bad row becomes padding; the block that owns the row tells.
    __aicore__ inline void scan() {
        fill_iota(iota(), kTileEntries);
        // Of the rows about whose faults it tells.
        const BlockShare own =
            block_share(p_.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        StepTotals totals{0, {0, 0}};
        for (int64_t first = 0; first < p_.num_rows; first += kChunkRows) {
            const uint32_t rows = static_cast<uint32_t>(min_of<int64_t>(kChunkRows, p_.num_rows - first));
            load_chunk(first, rows);
            if (vector_scan_.chunk(first, rows, requests_, lengths_, operands_, scanned(static_cast<uint32_t>(first)),
                                   totals)) {
                continue;
            }
            order<AscendC::HardEvent::MTE2_S>();
            for (uint32_t i = 0; i < rows; ++i) {
                const int64_t index = first + i;
                keep(static_cast<uint32_t>(index), i, index >= own.begin && index < own.end, totals);
            }
        }
        keep_totals(static_cast<uint32_t>(p_.num_rows), totals);
        settle();
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
    __aicore__ inline StagePart part(int32_t stage) const {
        return stage_part(step_, stage, work_);
    }

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
    // 1 when the operand of a row is the difference of two entries.
    __aicore__ inline uint32_t offsets() const { return p_.form == kFinalOffsets ? 1 : 0; }

    __aicore__ inline const LocalTensor<int32_t>& array(uint32_t index) const { return arrays_[index]; }

    __aicore__ inline ScannedRows scanned(uint32_t first) {
        return ScannedRows{array(0)[first], array(1)[first], array(2)[first],
                           array(3)[first], {array(4)[first], array(5)[first]}};
    }

    __aicore__ inline void load_chunk(int64_t first, uint32_t rows) {
        order<AscendC::HardEvent::S_MTE2>();
        if (p_.has_requests != 0) {
            requests_.load_chunk(first, rows);
        }
        lengths_.load_chunk(first, rows);
        if (form_has_operand(p_.form)) {
            operands_.load_chunk(first, rows + offsets());
        }
        order<AscendC::HardEvent::MTE2_V>();
    }

    __aicore__ inline void keep(uint32_t index, uint32_t chunk_row, bool own, StepTotals& totals) {
        const int64_t request = p_.has_requests != 0 ? requests_.get(chunk_row) : index;
        const int64_t length = lengths_.get(chunk_row);
        const int64_t operand = operand_of(chunk_row);
        const AdmittedRow admitted = admit_row(step_, totals, request, length, operand);
        const StepRow& row = admitted.row;
        if (own && admitted.fault != kRowValid) {
            errors_.report(admitted.fault, index, faulty_value(admitted.fault, request, length, operand));
        }
        starts().SetValue(index, static_cast<int32_t>(row.start));
        counts().SetValue(index, static_cast<int32_t>(row.num_new));
        requests().SetValue(index, is_padding(row) ? kNoRequest : static_cast<int32_t>(request));
        keep_totals(index, totals);
        totals.tokens += row.token_width;
        totals.groups[0] += num_groups(row, kRatioC4);
        totals.groups[1] += num_groups(row, kRatioC128);
    }

    __aicore__ inline int64_t operand_of(uint32_t chunk_row) const {
        if (offsets() != 0) {
            return operands_.get(chunk_row + 1) - operands_.get(chunk_row);
        }
        return form_has_operand(p_.form) ? operands_.get(chunk_row) : 0;
    }

    __aicore__ inline void keep_totals(uint32_t index, const StepTotals& totals) {
        prefix(0).SetValue(index, static_cast<int32_t>(totals.tokens));
        prefix(kShiftC4).SetValue(index, static_cast<int32_t>(totals.groups[0]));
        prefix(kShiftC128).SetValue(index, static_cast<int32_t>(totals.groups[1]));
    }

    const StepParams& step_;
    const StepRowsParams& p_;
    BlockShare work_;
    ErrorLane errors_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> array_buffer_, iota_buffer_, scratch_buffer_;
    LocalTensor<int32_t> arrays_[kRowArrays];
    RowValues requests_, lengths_, operands_;
    RowScan vector_scan_;
    uint32_t array_elems_;
};

}  // namespace dsv4::kernel
