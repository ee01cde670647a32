// A tile of RoPE rows of a step in UB, of all tables of a stage side by side: MTE2 and MTE3 copy rows of tables as
// pairs of bytes, whatever their elements are. V only repeats the row of position 0 for padding, and marks rows that no
// table has.
#pragma once

#include "device/errors.h"
#include "device/repeat_row.h"
#include "ops/step/step_stages.h"

namespace dsv4::kernel {

class RopeTile {
  public:
    // The tables of a stage whose rows are asked for. shift: of the tokens from one row to the next, 1 << shift.
    __aicore__ inline void start(const StepParams& p, const StepAddresses& memory, int32_t stage, int32_t shift) {
        const uint64_t groups[2] = {memory.rope_cos, memory.rope_sin};
        const int64_t entries = rope_entries(p, stage);
        const RopeOutputs outputs = rope_outputs(stage);
        shift_ = shift;
        count_ = 0;
        row_words_ = 0;
        least_max_pos_ = INT64_MAX;
        for (int32_t i = 0; i < outputs.count; ++i) {
            const RopeRow row = rope_row(p, stage, i);
            if (!wants(p, outputs.field + i) || row.bytes == 0) {
                continue;
            }
            Table& t = tables_[count_++];
            t.max_pos = row.max_pos;
            t.row_halves = static_cast<uint32_t>(row.bytes) / 2;
            t.gap_halves = ((1u << shift) - 1) * t.row_halves;
            t.pitch = round_up<uint32_t>(t.row_halves, 2 * static_cast<uint32_t>(kLaneElems));
            t.nan = row.elem_bytes == 4 ? kNanFloat : kTwoNanHalves;
            t.in = global<uint16_t>(at(stage == kStageTokenRope ? memory.token_rope[i] : groups[i]),
                                    static_cast<uint64_t>(t.max_pos) * t.row_halves);
            t.out =
                global<uint16_t>(at(memory.fields[outputs.field + i]), static_cast<uint64_t>(entries) * t.row_halves);
            row_words_ += t.pitch / 2;
            least_max_pos_ = min_of(least_max_pos_, t.max_pos);
        }
    }

    // int32 of UB that a row takes in all tables together.
    __aicore__ inline uint32_t row_words() const { return row_words_; }

    // The tile has `rows` rows; scratch: row_words() for each of them, and for the row of position 0.
    __aicore__ inline void place(const LocalTensor<int32_t>& scratch, uint32_t rows) {
        rows_ = rows;
        uint32_t words = 0;
        for (uint32_t i = 0; i < count_; ++i) {
            tables_[i].tile = scratch[words].template ReinterpretCast<uint16_t>();
            words += (rows + 1) * tables_[i].pitch / 2;
        }
        has_first_rows_ = false;
    }

    // Rows [area, area + lanes) are those of position 0: padding and the tail.
    __aicore__ inline void repeat_first_rows(uint32_t area, uint32_t lanes) {
        if (!has_first_rows_) {
            for (uint32_t i = 0; i < count_; ++i) {
                load(tables_[i].tile[rows_ * tables_[i].pitch], tables_[i].in, tables_[i].row_halves);
            }
            order<AscendC::HardEvent::MTE2_V>();
            has_first_rows_ = true;
        }
        for (uint32_t i = 0; i < count_; ++i) {
            const Table& t = tables_[i];
            repeat_row(t.tile[area * t.pitch].template ReinterpretCast<int16_t>(),
                       t.tile[rows_ * t.pitch].template ReinterpretCast<int16_t>(), lanes, t.pitch);
        }
    }

    // Rows [area, area + lanes) are those of positions from `position` on; rows past the table are NaN, of which the
    // first is told as that of entry `entry` and those behind it.
    __aicore__ inline void fetch(int64_t position, uint32_t lanes, uint32_t area, int64_t entry, ErrorLane& errors) {
        if (position + (static_cast<int64_t>(lanes - 1) << shift_) >= least_max_pos_) {
            fetch_past_end(position, lanes, area, entry, errors);
            return;
        }
        for (uint32_t i = 0; i < count_; ++i) {
            fetch_rows(tables_[i], position, lanes, area);
        }
    }

    // The first `rows` rows, to the entries from `entry` on.
    __aicore__ inline void store(int64_t entry, uint32_t rows) const {
        for (uint32_t i = 0; i < count_; ++i) {
            const Table& t = tables_[i];
            store_rows(t.out[static_cast<uint64_t>(entry) * t.row_halves], t.tile, rows, t.row_halves, t.pitch);
        }
    }

  private:
    // A table, its output, and where a tile of rows lies in UB, behind them the row of position 0.
    struct Table {
        GlobalTensor<uint16_t> in, out;
        LocalTensor<uint16_t> tile;
        int64_t max_pos;      // rows
        uint32_t row_halves;  // 16-bit units of a row
        uint32_t gap_halves;  // between two rows that are fetched together
        uint32_t pitch;       // of two rows in UB, 16-bit units
        int32_t nan;          // bits of elements that are no number
    };

    __aicore__ inline void fetch_rows(const Table& t, int64_t position, uint32_t lanes, uint32_t area) const {
        load_rows(t.tile[area * t.pitch], t.in[static_cast<uint64_t>(position) * t.row_halves], lanes, t.row_halves,
                  t.gap_halves, t.pitch);
    }

    // The same where a table may be shorter.
    __aicore__ inline void fetch_past_end(int64_t position, uint32_t lanes, uint32_t area, int64_t entry,
                                          ErrorLane& errors) const {
        for (uint32_t i = 0; i < count_; ++i) {
            const Table& t = tables_[i];
            const int64_t in_table = position < t.max_pos ? ((t.max_pos - position - 1) >> shift_) + 1 : 0;
            const uint32_t valid = static_cast<uint32_t>(min_of<int64_t>(lanes, in_table));
            if (valid > 0) {
                fetch_rows(t, position, valid, area);
            }
            if (valid < lanes) {
                AscendC::Duplicate(t.tile[(area + valid) * t.pitch].template ReinterpretCast<int32_t>(), t.nan,
                                   static_cast<int32_t>((lanes - valid) * t.pitch / 2));
                errors.report(kErrorPositionOutOfRange, entry + valid,
                              position + (static_cast<int64_t>(valid) << shift_));
            }
        }
    }

    // Bits of a NaN in float32, and in two elements of either 16-bit type.
    static constexpr int32_t kNanFloat = 0x7fc00000;
    static constexpr int32_t kTwoNanHalves = 0x7fff7fff;

    Table tables_[kNumTokenRope];
    uint32_t count_ = 0;         // of the outputs that are asked for
    int64_t least_max_pos_ = 0;  // rows of the shortest table
    uint32_t row_words_ = 0;
    uint32_t rows_ = 0;
    int32_t shift_ = 0;
    bool has_first_rows_ = false;
};

}  // namespace dsv4::kernel
