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
        const RopeOutputs outputs = rope_outputs(rows_.step(), stage);
        const int64_t live = rows_.total(outputs.shift);
        const BlockShare share = part.uneven_share(outputs.entries, live, kRopeTimes, 1);
        start(outputs);
        rows_.next_stage();
        runs_.start(rows_, outputs.shift, share, tile_rows_, 1);
        while (runs_.next_tile()) {
            order<AscendC::HardEvent::MTE3_MTE2>();
            order<AscendC::HardEvent::MTE3_V>();
            for (uint32_t i = 0; i < runs_.count(); ++i) {
                if (runs_[i].empty()) {
                    repeat_first_rows(runs_[i]);
                } else {
                    fetch(runs_[i], outputs.shift);
                }
            }
            order<AscendC::HardEvent::MTE2_MTE3>();
            order<AscendC::HardEvent::V_MTE3>();
            // Areas follow each other without gaps.
            for (uint32_t i = 0; i < count_; ++i) {
                store_rows(outs_[i][static_cast<uint64_t>(runs_.entry()) * row_halves_], tile(i, 0), runs_.used(),
                           row_halves_, pitch_);
            }
        }
    }

  private:
    // Where the tables, the outputs and their rows of position 0 and tiles in UB are.
    __aicore__ inline void start(const RopeOutputs& outputs) {
        // Tables of tokens lie in the order of their fields.
        const bool of_tokens = outputs.field >= kFieldMainCos;
        const uint64_t groups[2] = {memory_.rope_cos, memory_.rope_sin};
        const uint64_t* tables = of_tokens ? &memory_.token_rope[outputs.field - kFieldMainCos] : groups;
        max_pos_ = outputs.max_pos;
        row_halves_ = static_cast<uint32_t>(outputs.row_bytes) / 2;
        pitch_ = round_up<uint32_t>(row_halves_, 2 * static_cast<uint32_t>(kLaneElems));
        area_rows_ = static_cast<uint32_t>(kScratchElems) / pitch_;
        tile_rows_ = area_rows_ - 1;
        nan_ = outputs.elem_bytes == 4 ? kNanFloat : kTwoNanHalves;
        has_first_rows_ = false;
        count_ = 0;
        for (int32_t i = 0; i < 2; ++i) {
            if (wants(rows_.step(), outputs.field + i)) {
                tables_[count_] = global<uint16_t>(at(tables[i]), static_cast<uint64_t>(max_pos_) * row_halves_);
                outs_[count_] = global<uint16_t>(at(memory_.fields[outputs.field + i]),
                                                 static_cast<uint64_t>(outputs.entries) * row_halves_);
                ++count_;
            }
        }
    }

    // Padding and the tail have the row of position 0. It lies behind the rows of each tile.
    __aicore__ inline void repeat_first_rows(const UnitRun& run) {
        if (!has_first_rows_) {
            for (uint32_t i = 0; i < count_; ++i) {
                load(tile(i, tile_rows_), tables_[i], row_halves_);
            }
            order<AscendC::HardEvent::MTE2_V>();
            has_first_rows_ = true;
        }
        for (uint32_t i = 0; i < count_; ++i) {
            repeat_row(tile(i, run.area).template ReinterpretCast<int16_t>(),
                       tile(i, tile_rows_).template ReinterpretCast<int16_t>(), static_cast<uint32_t>(run.lanes), pitch_);
        }
    }

    // Rows of consecutive groups lie 1 << shift rows apart. Rows past the table are NaN.
    __aicore__ inline void fetch(const UnitRun& run, int32_t shift) {
        const int64_t ratio = int64_t{1} << shift;
        const int64_t position = group_position(run.first, ratio);
        const int64_t in_table = position < max_pos_ ? ((max_pos_ - position - 1) >> shift) + 1 : 0;
        const uint32_t lanes = static_cast<uint32_t>(run.lanes);
        const uint32_t valid = static_cast<uint32_t>(min_of<int64_t>(lanes, in_table));
        for (uint32_t i = 0; i < count_; ++i) {
            if (valid > 0) {
                load_rows(tile(i, run.area), tables_[i][static_cast<uint64_t>(position) * row_halves_], valid,
                          row_halves_, static_cast<uint32_t>(ratio - 1) * row_halves_, pitch_);
            }
            if (valid < lanes) {
                AscendC::Duplicate(words(i, run.area + valid), nan_,
                                   static_cast<int32_t>((lanes - valid) * pitch_ / 2));
            }
        }
        if (valid < lanes) {
            // Areas follow each other as entries do.
            rows_.errors().report(kErrorPositionOutOfRange, runs_.entry() + run.area + valid, position + valid * ratio);
        }
    }

    __aicore__ inline LocalTensor<int32_t> words(uint32_t table, uint32_t row) const {
        return rows_.scratch()[(table * area_rows_ + row) * (pitch_ / 2)];
    }

    __aicore__ inline LocalTensor<uint16_t> tile(uint32_t table, uint32_t row) const {
        return words(table, row).template ReinterpretCast<uint16_t>();
    }

    // Bits of a NaN in float32, and in two elements of either 16-bit type.
    static constexpr int32_t kNanFloat = 0x7fc00000;
    static constexpr int32_t kTwoNanHalves = 0x7fff7fff;

    StepRows& rows_;
    const StepAddresses& memory_;
    RowRuns runs_;
    GlobalTensor<uint16_t> tables_[2], outs_[2];
    int64_t max_pos_ = 0;
    uint32_t count_ = 0;       // of the outputs that are asked for
    uint32_t row_halves_ = 0;  // 16-bit units of a row
    uint32_t pitch_ = 0;       // of two rows in UB
    uint32_t area_rows_ = 0;   // of a table in UB: a tile and the row of position 0
    uint32_t tile_rows_ = 0;
    int32_t nan_ = 0;
    bool has_first_rows_ = false;
};

}  // namespace dsv4::kernel
