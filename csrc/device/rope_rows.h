// RoPE rows of a step's tokens, and of the groups that it completes (docs/spec.md, a step): rows of tables, copied by MTE2
// and MTE3 as pairs of bytes, whatever their elements are. V only repeats the row of position 0 for padding, and marks
// rows that no table has.
#pragma once

#include "device/repeat_row.h"
#include "device/row_runs.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class RopeRows {
  public:
    __aicore__ inline RopeRows(StepRows& rows, const StepAddresses& memory) : rows_(rows), memory_(memory) {}

    // Those outputs of a stage that are asked for, [entries, elements of a row].
    __aicore__ inline void write(int32_t stage) {
        const StagePart part = rows_.part(stage);
        if (part.empty()) {
            return;
        }
        const StepParams& p = rows_.step();
        shift_ = stage == kStageTokenRope ? 0 : stage == kStageRope ? kShiftC4 : kShiftC128;
        const int64_t entries = rope_entries(p, stage);
        const BlockShare share = part.uneven_share(entries, rows_.total(shift_), kRopeTimes, 1);
        rows_.next_stage();
        start(stage, entries);
        runs_.start(rows_, shift_, share, tile_rows_, 1);
        while (runs_.next_tile()) {
            order<AscendC::HardEvent::MTE3_MTE2>();
            order<AscendC::HardEvent::MTE3_V>();
            for (uint32_t i = 0; i < runs_.count(); ++i) {
                if (runs_[i].empty()) {
                    repeat_first_rows(runs_[i]);
                } else {
                    fetch(runs_[i]);
                }
            }
            order<AscendC::HardEvent::MTE2_MTE3>();
            order<AscendC::HardEvent::V_MTE3>();
            // Areas follow each other without gaps.
            for (uint32_t i = 0; i < count_; ++i) {
                const Table& t = tables_[i];
                store_rows(t.out[static_cast<uint64_t>(runs_.entry()) * t.row_halves], t.tile, runs_.used(),
                           t.row_halves, t.pitch);
            }
        }
    }

  private:
    // A table, its output, and where a tile of rows lies in UB, behind them the row of position 0.
    struct Table {
        GlobalTensor<uint16_t> in, out;
        LocalTensor<uint16_t> tile;
        int64_t max_pos;      // rows
        uint32_t row_halves;  // 16-bit units of a row
        uint32_t pitch;       // of two rows in UB, 16-bit units
        int32_t nan;          // bits of elements that are no number
    };

    __aicore__ inline void start(int32_t stage, int64_t entries) {
        const StepParams& p = rows_.step();
        const uint64_t groups[2] = {memory_.rope_cos, memory_.rope_sin};
        count_ = 0;
        uint32_t row_words = 0;  // of UB, of all tables together
        const RopeOutputs outputs = rope_outputs(stage);
        for (int32_t i = 0; i < outputs.count; ++i) {
            const RopeRow row = rope_row(p, stage, i);
            if (!wants(p, outputs.field + i) || row.bytes == 0) {
                continue;
            }
            Table& t = tables_[count_++];
            t.max_pos = row.max_pos;
            t.row_halves = static_cast<uint32_t>(row.bytes) / 2;
            t.pitch = round_up<uint32_t>(t.row_halves, 2 * static_cast<uint32_t>(kLaneElems));
            t.nan = row.elem_bytes == 4 ? kNanFloat : kTwoNanHalves;
            t.in = global<uint16_t>(at(stage == kStageTokenRope ? memory_.token_rope[i] : groups[i]),
                                    static_cast<uint64_t>(t.max_pos) * t.row_halves);
            t.out =
                global<uint16_t>(at(memory_.fields[outputs.field + i]), static_cast<uint64_t>(entries) * t.row_halves);
            row_words += t.pitch / 2;
        }
        tile_rows_ = static_cast<uint32_t>(kScratchElems) / row_words - 1;
        uint32_t words = 0;
        for (uint32_t i = 0; i < count_; ++i) {
            tables_[i].tile = rows_.scratch()[words].template ReinterpretCast<uint16_t>();
            words += (tile_rows_ + 1) * tables_[i].pitch / 2;
        }
        has_first_rows_ = false;
    }

    // Padding and the tail have the row of position 0.
    __aicore__ inline void repeat_first_rows(const UnitRun& run) {
        if (!has_first_rows_) {
            for (uint32_t i = 0; i < count_; ++i) {
                load(tables_[i].tile[tile_rows_ * tables_[i].pitch], tables_[i].in, tables_[i].row_halves);
            }
            order<AscendC::HardEvent::MTE2_V>();
            has_first_rows_ = true;
        }
        for (uint32_t i = 0; i < count_; ++i) {
            const Table& t = tables_[i];
            repeat_row(t.tile[run.area * t.pitch].template ReinterpretCast<int16_t>(),
                       t.tile[tile_rows_ * t.pitch].template ReinterpretCast<int16_t>(),
                       static_cast<uint32_t>(run.lanes), t.pitch);
        }
    }

    // Rows of consecutive groups lie 1 << shift_ rows apart. Rows past the table are NaN.
    __aicore__ inline void fetch(const UnitRun& run) {
        const int64_t position = run.first << shift_;
        const uint32_t lanes = static_cast<uint32_t>(run.lanes);
        for (uint32_t i = 0; i < count_; ++i) {
            const Table& t = tables_[i];
            const int64_t in_table = position < t.max_pos ? ((t.max_pos - position - 1) >> shift_) + 1 : 0;
            const uint32_t valid = static_cast<uint32_t>(min_of<int64_t>(lanes, in_table));
            const LocalTensor<uint16_t> area = t.tile[run.area * t.pitch];
            if (valid > 0) {
                load_rows(area, t.in[static_cast<uint64_t>(position) * t.row_halves], valid, t.row_halves,
                          ((1u << shift_) - 1) * t.row_halves, t.pitch);
            }
            if (valid < lanes) {
                AscendC::Duplicate(area[valid * t.pitch].template ReinterpretCast<int32_t>(), t.nan,
                                   static_cast<int32_t>((lanes - valid) * t.pitch / 2));
                // Areas follow each other as entries do.
                rows_.errors().report(kErrorPositionOutOfRange, runs_.entry() + run.area + valid,
                                      position + (static_cast<int64_t>(valid) << shift_));
            }
        }
    }

    // Bits of a NaN in float32, and in two elements of either 16-bit type.
    static constexpr int32_t kNanFloat = 0x7fc00000;
    static constexpr int32_t kTwoNanHalves = 0x7fff7fff;

    StepRows& rows_;
    const StepAddresses& memory_;
    RowRuns runs_;
    Table tables_[kNumTokenRope];
    uint32_t count_ = 0;  // of the outputs that are asked for
    uint32_t tile_rows_ = 0;
    int32_t shift_ = 0;
    bool has_first_rows_ = false;
};

}  // namespace dsv4::kernel
