// RoPE rows of the groups that a step completes (docs/spec.md, a step): float32 rows of two tables, copied by MTE2 and
// MTE3. V only repeats the row of position 0 in the tail.
#pragma once

#include "device/elements.h"
#include "device/repeat_row.h"
#include "device/row_pieces.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class GroupRope {
  public:
    __aicore__ inline GroupRope(StepRows& rows, const StepAddresses& memory)
        : rows_(rows),
          memory_(memory),
          max_pos_(rows.step().max_pos),
          dim_(static_cast<uint32_t>(rows.step().rope_dim)) {
        tables_[0] = global<float>(at(memory.rope_cos), static_cast<uint64_t>(max_pos_) * dim_);
        tables_[1] = global<float>(at(memory.rope_sin), static_cast<uint64_t>(max_pos_) * dim_);
        pitch_ = round_up<uint32_t>(dim_, kLaneElems);
        // Behind the rows of position 0 each table has a tile.
        const uint32_t table_elems = static_cast<uint32_t>(kScratchElems) / 2 / pitch_ * pitch_;
        tile_rows_ = table_elems / pitch_ - 1;
        for (uint32_t table = 0; table < 2; ++table) {
            first_rows_[table] = rows.scratch()[table * table_elems].ReinterpretCast<float>();
            tiles_[table] = rows.scratch()[table * table_elems + pitch_].ReinterpretCast<float>();
        }
    }

    // Those of c4_cos, c4_sin (which 0) or c128_cos, c128_sin (1) that are asked for: [entries, rope_dim].
    __aicore__ inline void write(int32_t which) {
        const int32_t field = kFieldC4Cos + 2 * which;
        const LocalTensor<int32_t> prefix = rows_.prefix(which == 0 ? kShiftC4 : kShiftC128);
        const int64_t entries = rows_.step().capacity_groups[which];
        const uint64_t elems = static_cast<uint64_t>(entries) * dim_;
        const GlobalTensor<float> out[2] = {global<float>(at(memory_.fields[field]), elems),
                                            global<float>(at(memory_.fields[field + 1]), elems)};
        const StagePart part = rows_.part(kStageRope + which);
        if (part.empty()) {
            return;
        }
        rows_.next_stage();
        const int64_t live = prefix.GetValue(static_cast<uint32_t>(rows_.params().num_rows));
        const BlockShare share = part.uneven_share(entries, live, 1);
        pieces_.start(prefix, rows_.params().num_rows, share, tile_rows_, 1);
        if (live < share.end) {
            load_first_rows();
        }
        while (pieces_.next_tile()) {
            order<AscendC::HardEvent::MTE3_MTE2>();
            order<AscendC::HardEvent::MTE3_V>();
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                const Piece& piece = pieces_[i];
                if (piece.row == rows_.params().num_rows) {
                    repeat_first_rows(piece);
                } else {
                    fetch(piece, ratio_of(which));
                }
            }
            order<AscendC::HardEvent::MTE2_MTE3>();
            order<AscendC::HardEvent::V_MTE3>();
            // Areas follow each other without gaps.
            for (uint32_t table = 0; table < 2; ++table) {
                if (wants(rows_.step(), field + static_cast<int32_t>(table))) {
                    store_rows(out[table][static_cast<uint64_t>(pieces_[0].entry) * dim_], tiles_[table], pieces_.used(),
                               dim_, pitch_);
                }
            }
        }
    }

  private:
    // What the tail repeats.
    __aicore__ inline void load_first_rows() {
        for (uint32_t table = 0; table < 2; ++table) {
            load(first_rows_[table], tables_[table], dim_);
        }
        order<AscendC::HardEvent::MTE2_V>();
    }

    __aicore__ inline void repeat_first_rows(const Piece& piece) {
        for (uint32_t table = 0; table < 2; ++table) {
            repeat_row(tile(table, piece.area).ReinterpretCast<int32_t>(),
                       first_rows_[table].ReinterpretCast<int32_t>(), piece.units, pitch_);
        }
    }

    // Rows of consecutive groups lie `ratio` rows apart. Rows past the table are NaN.
    __aicore__ inline void fetch(const Piece& piece, int64_t ratio) {
        const int64_t position = group_position(first_group(rows_.row(piece.row), ratio) + piece.offset, ratio);
        const int64_t in_table = position < max_pos_ ? ceil_div(max_pos_ - position, ratio) : 0;
        const uint32_t valid = static_cast<uint32_t>(min_of<int64_t>(piece.units, in_table));
        const uint32_t gap_elems = static_cast<uint32_t>(ratio - 1) * dim_;
        for (uint32_t table = 0; table < 2; ++table) {
            if (valid > 0) {
                load_rows(tile(table, piece.area), tables_[table][static_cast<uint64_t>(position) * dim_], valid, dim_,
                          gap_elems, pitch_);
            }
            if (valid < piece.units) {
                fill_nan(tile(table, piece.area + valid), static_cast<int32_t>((piece.units - valid) * pitch_));
            }
        }
        if (valid < piece.units) {
            rows_.errors().report(kErrorPositionOutOfRange, piece.entry + valid, position + valid * ratio);
        }
    }

    __aicore__ inline LocalTensor<float> tile(uint32_t table, uint32_t row) { return tiles_[table][row * pitch_]; }

    StepRows& rows_;
    const StepAddresses& memory_;
    RowPieces pieces_;
    GlobalTensor<float> tables_[2];
    LocalTensor<float> first_rows_[2];
    LocalTensor<float> tiles_[2];
    int64_t max_pos_;
    uint32_t dim_;
    uint32_t pitch_;  // elements between two rows in UB
    uint32_t tile_rows_;
};

}  // namespace dsv4::kernel
