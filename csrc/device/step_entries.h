// Flat outputs of a step, one entry a token or a completed group: positions and slots. Each call writes the block's
// share of whole buffers, their zero tails included.
#pragma once

#include "device/pool_slots.h"
#include "device/row_pieces.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class StepEntries {
  public:
    __aicore__ inline StepEntries(StepRows& rows, const StepAddresses& memory)
        : rows_(rows), memory_(memory), slots_(rows.step().pools, memory.tables, rows.iota(), rows.scratch()) {}

    // int64 RoPE positions of tokens or of groups, and their slots in some pools, which share the walk over the rows.
    __aicore__ inline void write(const EntryOutputs& outputs) {
        const StepParams& p = rows_.step();
        const StagePart part = rows_.part(outputs.stage);
        if (part.empty()) {
            return;
        }
        const LocalTensor<int32_t> prefix = rows_.prefix(outputs.shift);
        const int64_t live = prefix.GetValue(static_cast<uint32_t>(p.rows.num_rows));
        // Shares meet at multiples of 32 bytes of int32.
        const BlockShare share = part.uneven_share(outputs.entries, live, kEntryTimes, kLaneElems);
        if (share.begin == share.end) {
            return;
        }
        rows_.next_stage();
        pieces_.start(prefix, p.rows.num_rows, share, kSlotTileLanes, kLaneElems);
        while (pieces_.next_tile()) {
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                runs_[i] = run_of(pieces_[i], outputs.shift);
            }
            slots_.start(runs_, pieces_.count(), pieces_.used());
            if (wants(p, outputs.positions)) {
                write_positions(outputs);
            }
            for (int32_t pool = 0; pool < kNumPools; ++pool) {
                if (makes_slots(outputs.stage, pool) && wants(p, kFieldSlots + pool)) {
                    write_slots(pool, outputs.entries);
                }
            }
        }
    }

  private:
    // A piece's units; behind the last row and in rows of padding, none.
    __aicore__ inline UnitRun run_of(const Piece& piece, int32_t shift) {
        const int32_t units = static_cast<int32_t>(piece.units);
        if (piece.row == rows_.params().num_rows || rows_.count(piece.row) == 0) {
            return UnitRun{0, 0, units, 0, 0, piece.area};
        }
        return UnitRun{rows_.request(piece.row), (rows_.start(piece.row) >> shift) + piece.offset, units, 0, units,
                       piece.area};
    }

    __aicore__ inline void write_positions(const EntryOutputs& outputs) {
        // The store of the tile before reads what V writes next.
        order<AscendC::HardEvent::MTE3_V>();
        const LocalTensor<int64_t> wide = slots_.widened(slots_.positions(outputs.shift));
        order<AscendC::HardEvent::V_MTE3>();
        store_tile(global<int64_t>(at(memory_.fields[outputs.positions]), static_cast<uint64_t>(outputs.entries)), wide);
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
