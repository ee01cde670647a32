// Flat outputs of a step, one entry a token or a completed group: positions and slots. Each call writes the block's
// share of one whole buffer, its zero tail included.
#pragma once

#include "device/row_pieces.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

// Where slots come from and go to. A pool that does not exist has rows of 0 elements.
struct SlotTable {
    GM_ADDR table;
    int64_t row_elems;
    GM_ADDR out;
};

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
        start<ratio>(block_share(entries, kShareEntries, AscendC::GetBlockIdx(), AscendC::GetBlockNum()));
        while (pieces_.next_tile()) {
            AscendC::PipeBarrier<PIPE_V>();
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                const Piece& piece = pieces_[i];
                const int32_t units = static_cast<int32_t>(piece.units);
                const StepRow row = row_of(piece);
                if (is_padding(row)) {
                    AscendC::Duplicate(values[piece.area], int32_t{0}, units);
                } else {
                    const int64_t first = group_position(first_group(row, ratio) + piece.offset, ratio);
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

    // int32 slots of tokens (ratio 1) or groups, as the request tables have them: MTE2 fetches each row's entries. Several
    // tables share the walk over the rows; without a pool there is nothing to walk for, and `entries` means nothing.
    template <int64_t ratio, uint32_t tables>
    __aicore__ inline void slots(const SlotTable (&pools)[tables], int64_t entries) {
        static_assert(tables * kTileEntries <= kScratchElems, "a tile for each table");
        if (!any_exists(pools, tables)) {
            return;
        }
        rows_.next_stage();
        const int64_t live = rows_.prefix(ratio).GetValue(static_cast<uint32_t>(rows_.params().num_rows));
        start<ratio>(
            uneven_block_share(entries, live, kShareEntries, AscendC::GetBlockIdx(), AscendC::GetBlockNum()));
        while (pieces_.next_tile()) {
            order<AscendC::HardEvent::MTE3_MTE2>();
            order<AscendC::HardEvent::MTE3_V>();
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                fetch_slots<ratio>(pools, tables, pieces_[i]);
            }
            order<AscendC::HardEvent::MTE2_MTE3>();
            order<AscendC::HardEvent::V_MTE3>();
            for (uint32_t table = 0; table < tables; ++table) {
                if (pool_exists(pools[table].row_elems)) {
                    store_tile(global<int32_t>(pools[table].out, static_cast<uint64_t>(entries)), slot_tile(table));
                }
            }
        }
    }

  private:
    // Shares meet at multiples of 64 bytes of int32.
    static constexpr int64_t kShareEntries = 2 * kLaneElems;

    template <int64_t ratio>
    __aicore__ inline void start(const BlockShare& share) {
        pieces_.start(rows_.prefix(ratio), rows_.params().num_rows, share, kTileEntries, kLaneElems);
    }

    __aicore__ inline bool any_exists(const SlotTable* pools, uint32_t tables) const {
        bool exists = false;
        for (uint32_t table = 0; table < tables; ++table) {
            exists = exists || pool_exists(pools[table].row_elems);
        }
        return exists;
    }

    // The row that a piece belongs to; behind the last row, one of padding.
    __aicore__ inline StepRow row_of(const Piece& piece) {
        return piece.row == rows_.params().num_rows ? StepRow{0, 0, 0} : rows_.row(piece.row);
    }

    __aicore__ inline LocalTensor<int32_t> slot_tile(uint32_t table) {
        return rows_.scratch()[table * static_cast<uint32_t>(kTileEntries)];
    }

    template <int64_t ratio>
    __aicore__ inline void fetch_slots(const SlotTable* pools, uint32_t tables, const Piece& piece) {
        const StepRow row = row_of(piece);
        const int64_t request = is_padding(row) ? 0 : rows_.request(piece.row);
        for (uint32_t table = 0; table < tables; ++table) {
            const int64_t row_elems = pools[table].row_elems;
            if (!pool_exists(row_elems)) {
                continue;
            }
            const LocalTensor<int32_t> values = slot_tile(table)[piece.area];
            if (is_padding(row)) {
                AscendC::Duplicate(values, int32_t{0}, static_cast<int32_t>(piece.units));
                continue;
            }
            const GlobalTensor<int32_t> source =
                global<int32_t>(pools[table].table, static_cast<uint64_t>(rows_.params().max_requests * row_elems));
            const int64_t entry = request * row_elems + first_group(row, ratio) + piece.offset;
            load(values, source[static_cast<uint64_t>(entry)], piece.units);
        }
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
