// What a step says of each row: slices of the arrays in UB.
#pragma once

#include "device/step_rows.h"

namespace dsv4::kernel {

class RowVectors {
  public:
    __aicore__ inline RowVectors(StepRows& rows, const StepAddresses& memory) : rows_(rows), memory_(memory) {}

    // start_pos, seqused, kv_lens [B], cu_seqlens [B + 1], num_groups [2]
    __aicore__ inline void write() {
        const StepParams& p = rows_.step();
        const int64_t num_rows = p.rows.num_rows;
        const BlockShare share = rows_.part(kStageRows).share(num_rows + 1, kLaneElems);
        if (share.begin == share.end) {
            return;
        }
        const uint32_t begin = static_cast<uint32_t>(share.begin);
        const uint32_t mine = static_cast<uint32_t>(min_of(share.end, num_rows) - share.begin);
        if (share.end == num_rows + 1) {
            put_totals();
        }
        rows_.next_stage();
        if (wants(p, kFieldCuSeqlens) && mine > 0) {
            store(row_vector(kFieldCuSeqlens, num_rows + 1)[begin], rows_.prefix(0)[begin], mine);
        }
        if (share.end == num_rows + 1) {
            write_totals();
        }
        if (mine == 0) {
            return;
        }
        if (wants(p, kFieldStartPos)) {
            store(row_vector(kFieldStartPos, num_rows)[begin], rows_.starts()[begin], mine);
        }
        if (wants(p, kFieldSeqUsed)) {
            store(row_vector(kFieldSeqUsed, num_rows)[begin], rows_.counts()[begin], mine);
        }
        if (wants(p, kFieldKvLens)) {
            write_kv_lens(begin, mine);
        }
    }

  private:
    __aicore__ inline GlobalTensor<int32_t> row_vector(int32_t field, int64_t entries) const {
        return global<int32_t>(at(memory_.fields[field]), static_cast<uint64_t>(entries));
    }

    // Two areas behind the kv lengths.
    __aicore__ inline LocalTensor<int32_t> total(uint32_t which) const {
        const uint32_t kv_lens = round_up<uint32_t>(static_cast<uint32_t>(kMaxDeviceRows) + 1, kLaneElems);
        return rows_.scratch()[kv_lens + which * static_cast<uint32_t>(kLaneElems)];
    }

    // What there is once: the block that has the last offset writes it.
    __aicore__ inline void put_totals() {
        const StepRowsParams& p = rows_.params();
        const uint32_t last = static_cast<uint32_t>(p.num_rows);
        if (rows_.step().other_page_tables != 0 && !has_lasting_scratch(rows_.step())) {
            // Long rows of page tables may be on their way from here.
            order<AscendC::HardEvent::MTE3_S>();
        }
        total(0).SetValue(
            0, p.closes_cu_seqlens != 0 ? static_cast<int32_t>(p.num_tokens) : rows_.prefix(0).GetValue(last));
        total(1).SetValue(0, rows_.prefix(kShiftC4).GetValue(last));
        total(1).SetValue(1, rows_.prefix(kShiftC128).GetValue(last));
        order<AscendC::HardEvent::S_MTE3>();
    }

    __aicore__ inline void write_totals() {
        const int64_t num_rows = rows_.params().num_rows;
        if (wants(rows_.step(), kFieldCuSeqlens)) {
            store(row_vector(kFieldCuSeqlens, num_rows + 1)[static_cast<uint64_t>(num_rows)], total(0), 1);
        }
        if (wants(rows_.step(), kFieldNumGroups)) {
            store(row_vector(kFieldNumGroups, 2), total(1), 2);
        }
    }

    __aicore__ inline void write_kv_lens(uint32_t begin, uint32_t count) {
        const LocalTensor<int32_t> kv_lens = rows_.scratch();
        AscendC::Add(kv_lens, rows_.starts()[begin], rows_.counts()[begin], static_cast<int32_t>(count));
        AscendC::PipeBarrier<PIPE_V>();
        // Only padding has length 0.
        AscendC::Maxs(kv_lens, kv_lens, static_cast<int32_t>(kv_length(StepRow{0, 0, 0})), static_cast<int32_t>(count));
        order<AscendC::HardEvent::V_MTE3>();
        store(row_vector(kFieldKvLens, rows_.params().num_rows)[begin], kv_lens, count);
    }

    StepRows& rows_;
    const StepAddresses& memory_;
};

}  // namespace dsv4::kernel
