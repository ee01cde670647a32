// Flat outputs of a step, one entry a token or a completed group: positions and slots. Each call writes the block's
// share of one whole buffer, its zero tail included.
#pragma once

#include "device/pool_slots.h"
#include "device/row_pieces.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class StepEntries {
  public:
    __aicore__ inline StepEntries(StepRows& rows, const StepAddresses& memory)
        : rows_(rows), memory_(memory), slots_(rows.step().pools, memory.tables, rows.iota(), rows.scratch()) {}

    // int64 RoPE positions of tokens (ratio 1) or groups. V makes a tile of int32 and widens it.
    template <int64_t ratio>
    __aicore__ inline void positions(int32_t field, int64_t entries) {
        if (!wants(rows_.step(), field)) {
            return;
        }
        const GlobalTensor<int64_t> target =
            global<int64_t>(at(memory_.fields[field]), static_cast<uint64_t>(entries));
        constexpr int32_t stage =
            ratio == 1 ? kStagePositions : ratio == kRatioC4 ? kStagePositionsC4 : kStagePositionsC128;
        const BlockShare share = this->share<ratio>(stage, entries);
        if (share.begin == share.end) {
            return;
        }
        const LocalTensor<int32_t> steps = rows_.scratch();
        const LocalTensor<int32_t> values = rows_.scratch()[kTileEntries];
        const LocalTensor<int64_t> wide = rows_.scratch()[2 * kTileEntries].template ReinterpretCast<int64_t>();
        rows_.next_stage();
        AscendC::Muls(steps, rows_.iota(), static_cast<int32_t>(ratio), static_cast<int32_t>(kTileEntries));
        start<ratio>(share);
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

    // Slots of tokens (ratio 1) or groups in some pools, which share the walk over the rows.
    template <int64_t ratio, uint32_t count>
    __aicore__ inline void slots(const int32_t (&pools)[count], int64_t entries) {
        const StepParams& p = rows_.step();
        bool wanted = false;
        for (const int32_t pool : pools) {
            wanted = wanted || wants(p, kFieldSlots + pool);
        }
        if (!wanted) {
            return;
        }
        const BlockShare share =
            this->share<ratio>(ratio == 1 ? kStageTokens : ratio == kRatioC4 ? kStageC4 : kStageC128, entries);
        if (share.begin == share.end) {
            return;
        }
        rows_.next_stage();
        pieces_.start(rows_.prefix(ratio), rows_.params().num_rows, share, kSlotTileLanes, kLaneElems);
        while (pieces_.next_tile()) {
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                runs_[i] = run_of<ratio>(pieces_[i]);
            }
            slots_.start(runs_, pieces_.count(), pieces_.used());
            for (const int32_t pool : pools) {
                if (wants(p, kFieldSlots + pool)) {
                    write_slots(pool, entries);
                }
            }
        }
    }

  private:
    // Shares meet at multiples of 32 bytes of int32.
    template <int64_t ratio>
    __aicore__ inline BlockShare share(int32_t stage, int64_t entries) const {
        const int64_t live = rows_.prefix(ratio).GetValue(static_cast<uint32_t>(rows_.params().num_rows));
        return rows_.part(stage).uneven_share(entries, live, kLaneElems);
    }

    template <int64_t ratio>
    __aicore__ inline void start(const BlockShare& share) {
        pieces_.start(rows_.prefix(ratio), rows_.params().num_rows, share, kTileEntries, kLaneElems);
    }

    // The row that a piece belongs to; behind the last row, one of padding.
    __aicore__ inline StepRow row_of(const Piece& piece) {
        return piece.row == rows_.params().num_rows ? StepRow{0, 0, 0} : rows_.row(piece.row);
    }

    template <int64_t ratio>
    __aicore__ inline UnitRun run_of(const Piece& piece) {
        const StepRow row = row_of(piece);
        const int32_t units = static_cast<int32_t>(piece.units);
        if (is_padding(row)) {
            return UnitRun{0, 0, units, 0, 0, piece.area};
        }
        return UnitRun{rows_.request(piece.row), first_group(row, ratio) + piece.offset, units, 0, units, piece.area};
    }

    __aicore__ inline void write_slots(int32_t pool, int64_t entries) {
        const StepParams& p = rows_.step();
        // The store of the pool before reads what V writes next.
        order<AscendC::HardEvent::MTE3_V>();
        const LocalTensor<int32_t> values = slots_.slots(pool, p.dummy_slots[pool]);
        GM_ADDR out = at(memory_.fields[kFieldSlots + pool]);
        if (are_wide(p, pool) || are_pairs(p, pool)) {
            const LocalTensor<int64_t> wide =
                are_pairs(p, pool) ? slots_.paired(values, p.pools[pool].page_shift) : slots_.widened(values);
            order<AscendC::HardEvent::V_MTE3>();
            store_tile(global<int64_t>(out, static_cast<uint64_t>(entries)), wide);
        } else {
            order<AscendC::HardEvent::V_MTE3>();
            store_tile(global<int32_t>(out, static_cast<uint64_t>(entries)), values);
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
    const StepAddresses& memory_;
    RowPieces pieces_;
    PoolSlots slots_;
    UnitRun runs_[kMaxRuns];
};
static_assert(kTilePieces <= kMaxRuns);

}  // namespace dsv4::kernel
