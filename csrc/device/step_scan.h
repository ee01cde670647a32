// Finds the rows of a step: every block reads the inputs of all rows and keeps what its stages need.
#pragma once

#include "device/row_scan.h"
#include "device/row_values.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

// has_operands: rows may be of a form that has an operand; otherwise they are not, and there are no columns that a row's
// tokens could be beyond (takes_uniform).
template <bool has_operands>
class StepScan {
  public:
    __aicore__ inline StepScan(StepRows& rows, const StepAddresses& memory)
        : rows_(rows), step_(rows.step()), p_(rows.params()) {
        constexpr uint32_t input_elems = kChunkRows * 2;
        const LocalTensor<int32_t> scratch = rows.scratch();
        requests_.init(at(memory.requests), p_.num_rows, p_.request_is_int64, scratch);
        lengths_.init(at(memory.lengths), p_.num_rows, p_.length_is_int64, scratch[input_elems]);
        if constexpr (has_operands) {
            // The last of them: a chunk of offsets has one entry more than there are rows.
            operands_.init(at(memory.operands), p_.num_rows + offsets(), p_.operand_is_int64,
                           scratch[2 * input_elems]);
        }
        vector_scan_.init(step_, rows.iota(), scratch[static_cast<uint32_t>(kRowInputElems)], rows.counts_groups());
    }

    // Fills the arrays. A bad row becomes padding; the block that owns the row tells.
    __aicore__ inline void run() {
        // Of the rows about whose faults it tells.
        const BlockShare own = block_share(p_.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
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
        rows_.settle();
    }

  private:
    // 1 when the operand of a row is the difference of two entries.
    __aicore__ inline uint32_t offsets() const { return p_.form == kFinalOffsets ? 1 : 0; }

    __aicore__ inline ScannedRows scanned(uint32_t first) {
        return ScannedRows{rows_.starts()[first],
                           rows_.counts()[first],
                           rows_.requests()[first],
                           rows_.prefix(0)[first],
                           {rows_.prefix(kShiftC4)[first], rows_.prefix(kShiftC128)[first]}};
    }

    __aicore__ inline void load_chunk(int64_t first, uint32_t rows) {
        order<AscendC::HardEvent::S_MTE2>();
        if (p_.has_requests != 0) {
            requests_.load_chunk(first, rows);
        }
        lengths_.load_chunk(first, rows);
        if constexpr (has_operands) {
            if (form_has_operand(p_.form)) {
                operands_.load_chunk(first, rows + offsets());
            }
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
            rows_.errors().report(admitted.fault, index, faulty_value(admitted.fault, request, length, operand));
        }
        rows_.starts().SetValue(index, static_cast<int32_t>(row.start));
        rows_.counts().SetValue(index, static_cast<int32_t>(row.num_new));
        rows_.requests().SetValue(index, is_padding(row) ? kNoRequest : static_cast<int32_t>(request));
        keep_totals(index, totals);
        totals.tokens += row.token_width;
        totals.groups[0] += num_groups(row, kRatioC4);
        totals.groups[1] += num_groups(row, kRatioC128);
    }

    __aicore__ inline int64_t operand_of(uint32_t chunk_row) const {
        if constexpr (has_operands) {
            if (offsets() != 0) {
                return operands_.get(chunk_row + 1) - operands_.get(chunk_row);
            }
            return form_has_operand(p_.form) ? operands_.get(chunk_row) : 0;
        }
        return 0;
    }

    __aicore__ inline void keep_totals(uint32_t index, const StepTotals& totals) {
        rows_.prefix(0).SetValue(index, static_cast<int32_t>(totals.tokens));
        rows_.prefix(kShiftC4).SetValue(index, static_cast<int32_t>(totals.groups[0]));
        rows_.prefix(kShiftC128).SetValue(index, static_cast<int32_t>(totals.groups[1]));
    }

    StepRows& rows_;
    const StepParams& step_;
    const StepRowsParams& p_;
    RowValues requests_, lengths_, operands_;
    RowScan<has_operands> vector_scan_;
};

}  // namespace dsv4::kernel
