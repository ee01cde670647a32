// Flat outputs of a step, one entry a token or a completed group: positions and slots. Each call writes the block's
// share of one whole buffer, its zero tail included.
#pragma once

#include "device/row_pieces.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class StepEntries {
  public:
    __aicore__ inline explicit StepEntries(StepRows& rows) : rows_(rows) {}

    // int64 RoPE positions of tokens (ratio 1) or groups. V makes a tile of int32 and widens it.
    template <int64_t ratio>
    __aicore__ inline void positions(GM_ADDR out, int64_t entries) {
        const GlobalTensor<int64_t> target = global<int64_t>(out, static_cast<uint64_t>(entries));
        const LocalTensor<int32_t> steps = rows_.scratch();
        const LocalTensor<int32_t> values = rows_.scratch()[kTileEntries];
        const LocalTensor<int64_t> wide = rows_.scratch()[2 * kTileEntries].template ReinterpretCast<int64_t>();
        rows_.next_stage();
        AscendC::Muls(steps, rows_.iota(), static_cast<int32_t>(ratio), static_cast<int32_t>(kTileEntries));
        start<ratio>(entries);
        while (pieces_.next_tile()) {
            AscendC::PipeBarrier<PIPE_V>();
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                const Piece& piece = pieces_[i];
                const int32_t units = static_cast<int32_t>(piece.units);
                if (is_zero(piece)) {
                    AscendC::Duplicate(values[piece.area], int32_t{0}, units);
                } else {
                    const int64_t first = group_position(unit_of<ratio>(piece), ratio);
                    AscendC::Adds(values[piece.area], steps, static_cast<int32_t>(first), units);
                }
            }
            AscendC::PipeBarrier<PIPE_V>();
            order<AscendC::HardEvent::MTE3_V>();
            AscendC::Cast(wide, values, AscendC::RoundMode::CAST_NONE, pieces_.used());
            order<AscendC::HardEvent::V_MTE3>();
            store_tile(target, wide);
        }
    }

    // int32 slots of tokens (ratio 1) or groups, as the request table has them. MTE2 fetches each row's entries.
    template <int64_t ratio>
    __aicore__ inline void slots(GM_ADDR table, int64_t row_elems, GM_ADDR out, int64_t entries) {
        if (!pool_exists(row_elems)) {
            return;
        }
        const GlobalTensor<int32_t> source =
            global<int32_t>(table, static_cast<uint64_t>(rows_.params().max_requests * row_elems));
        const GlobalTensor<int32_t> target = global<int32_t>(out, static_cast<uint64_t>(entries));
        const LocalTensor<int32_t> values = rows_.scratch();
        rows_.next_stage();
        start<ratio>(entries);
        while (pieces_.next_tile()) {
            order<AscendC::HardEvent::MTE3_MTE2>();
            order<AscendC::HardEvent::MTE3_V>();
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                const Piece& piece = pieces_[i];
                if (is_zero(piece)) {
                    AscendC::Duplicate(values[piece.area], int32_t{0}, static_cast<int32_t>(piece.units));
                } else {
                    const int64_t entry = rows_.request(piece.row) * row_elems + unit_of<ratio>(piece);
                    load(values[piece.area], source[static_cast<uint64_t>(entry)], piece.units);
                }
            }
            order<AscendC::HardEvent::MTE2_MTE3>();
            order<AscendC::HardEvent::V_MTE3>();
            store_tile(target, values);
        }
    }

  private:
    template <int64_t ratio>
    __aicore__ inline void start(int64_t entries) {
        // Shares meet at multiples of 64 bytes of int32.
        const BlockShare share = block_share(entries, 2 * kLaneElems, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        pieces_.start(rows_.prefix(ratio), rows_.params().num_rows, share, kTileEntries, kLaneElems);
    }

    // Behind the last row, or a token of a padding row.
    __aicore__ inline bool is_zero(const Piece& piece) {
        return piece.row == rows_.params().num_rows || is_padding(rows_.row(piece.row));
    }

    // The token or group that a piece starts with.
    template <int64_t ratio>
    __aicore__ inline int64_t unit_of(const Piece& piece) {
        return first_group(rows_.row(piece.row), ratio) + piece.offset;
    }

    template <typename T>
    __aicore__ inline void store_tile(const GlobalTensor<T>& target, const LocalTensor<T>& tile) {
        for (uint32_t i = 0; i < pieces_.count();) {
            const Piece& piece = pieces_[i];
            const uint32_t equal = pieces_.equal_pieces(i);
            store_rows(target[static_cast<uint64_t>(piece.entry)], tile[piece.area], equal, piece.units,
                       round_up<uint32_t>(piece.units, kLaneElems));
            i += equal;
        }
    }

    StepRows& rows_;
    RowPieces pieces_;
};

}  // namespace dsv4::kernel
