// Flat outputs of a step, one entry a token or a completed group: positions and slots. Each call writes the block's
// share of whole buffers, their zero tails included.
#pragma once

#include "device/pool_slots.h"
#include "device/row_runs.h"
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
        const int64_t live = rows_.total(outputs.shift);
        // Shares meet at multiples of 32 bytes of int32.
        const BlockShare share = part.uneven_share(outputs.entries, live, kEntryTimes, kLaneElems);
        if (share.begin == share.end) {
            return;
        }
        rows_.next_stage();
        runs_.start(rows_, outputs.shift, share, kSlotTileLanes, kLaneElems);
        while (runs_.next_tile()) {
            slots_.start(runs_.runs(), runs_.count(), runs_.used(), slot_pools(p, outputs.stage));
            if (wants(p, outputs.positions)) {
                write_positions(outputs);
            }
            for (int32_t pool = 0; pool < kNumPools; ++pool) {
                if ((slot_pools(p, outputs.stage) >> pool & 1) != 0) {
                    write_slots(pool, outputs.entries);
                }
            }
        }
    }

  private:
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
        runs_.each_equal([&](int64_t entry, uint32_t area, uint32_t runs, uint32_t lanes) {
            store_rows(target[static_cast<uint64_t>(entry)], tile[area], runs, lanes,
                       round_up<uint32_t>(lanes, kLaneElems));
        });
    }

    StepRows& rows_;
    const StepAddresses& memory_;
    RowRuns runs_;
    PoolSlots slots_;
};

}  // namespace dsv4::kernel
