// Outputs with a row of slots for each request: explicit state tables, and the window that the tokens of a block attend
// to.
#pragma once

#include "device/pool_slots.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class RowSlots {
  public:
    __aicore__ inline RowSlots(StepRows& rows, const StepAddresses& memory)
        : rows_(rows), memory_(memory), slots_(rows.step().pools, memory.tables, rows.iota(), rows.scratch()) {}

    // c4_state_locs or c128_state_locs: int32 [B, columns].
    __aicore__ inline void states(int32_t which) {
        const StepParams& p = rows_.step();
        const int32_t columns = p.state_columns[which];
        if (columns == 0) {
            return;
        }
        const int64_t num_rows = rows_.params().num_rows;
        const uint32_t pitch = round_up<uint32_t>(static_cast<uint32_t>(columns), kLaneElems);
        const int64_t tile_rows = min_of<int64_t>(kMaxRuns, kSlotTileLanes / pitch);
        const GlobalTensor<int32_t> out =
            global<int32_t>(at(memory_.fields[kFieldC4StateLocs + which]), static_cast<uint64_t>(num_rows * columns));
        const BlockShare share = rows_.part(kStageStates + which).share(num_rows, 1);
        rows_.next_stage();
        for (int64_t row = share.begin; row < share.end; row += tile_rows) {
            const uint32_t count = static_cast<uint32_t>(min_of(tile_rows, share.end - row));
            for (uint32_t i = 0; i < count; ++i) {
                runs_[i] = state_run(row + i, which, columns, i * pitch);
            }
            order<AscendC::HardEvent::MTE3_V>();
            slots_.start(runs_, count, count * pitch);
            const LocalTensor<int32_t> values = slots_.slots(kC4State + which, p.dummy_slots[kC4State + which]);
            order<AscendC::HardEvent::V_MTE3>();
            store_rows(out[static_cast<uint64_t>(row * columns)], values, count, static_cast<uint32_t>(columns), pitch);
        }
    }

    // window_locs: int32 [rows * block, K]. A block takes an equal share of the requests, those behind the batch
    // included.
    __aicore__ inline void windows() {
        const StepParams& p = rows_.step();
        if (p.window_rows == 0) {
            return;
        }
        const int64_t requests = p.window_rows / p.window_block;
        const BlockShare share = rows_.part(kStageWindows).share(requests, 1);
        rows_.next_stage();
        for (int64_t row = share.begin; row < share.end; ++row) {
            window(row);
        }
    }

  private:
    __aicore__ inline UnitRun state_run(int64_t index, int32_t which, int32_t columns, uint32_t area) {
        const int64_t ratio = ratio_of(which);
        const StepRow row = rows_.row(index);
        const TokenSpan tokens = state_tokens(row, which, rows_.step());
        if (is_padding(row)) {
            return UnitRun{0, 0, columns, 0, 0, area};
        }
        const int32_t begin = static_cast<int32_t>(state_column(row, tokens.begin, ratio));
        const int32_t end = static_cast<int32_t>(state_column(row, tokens.end, ratio));
        return UnitRun{rows_.request(index), row.start - state_lead(ratio), columns, begin, min_of(end, columns), area};
    }

    __aicore__ inline void window(int64_t index) {
        const StepParams& p = rows_.step();
        const StepRow row = index < rows_.params().num_rows ? rows_.row(index) : StepRow{0, 0, 0};
        const TokenSpan tokens = window_tokens(row, p);
        const int32_t live = static_cast<int32_t>(tokens.end - tokens.begin);
        const uint32_t columns = static_cast<uint32_t>(p.window_columns);
        runs_[0] = UnitRun{is_padding(row) ? 0 : rows_.request(index),
                           tokens.begin,
                           p.window_columns,
                           0,
                           min_of(live, p.window_columns),
                           0};
        order<AscendC::HardEvent::MTE3_V>();
        slots_.start(runs_, 1, round_up<uint32_t>(columns, kLaneElems));
        const LocalTensor<int32_t> values = slots_.slots(kSwa, kWindowEnd);
        if (is_padding(row)) {
            order<AscendC::HardEvent::V_S>();
            values.SetValue(0, kIdleWindow);
            order<AscendC::HardEvent::S_MTE3>();
        }
        order<AscendC::HardEvent::V_MTE3>();
        const GlobalTensor<int32_t> out =
            global<int32_t>(at(memory_.fields[kFieldWindowLocs]),
                            static_cast<uint64_t>(p.window_rows) * static_cast<uint64_t>(columns));
        for (int64_t token = 0; token < p.window_block; ++token) {
            store(out[static_cast<uint64_t>(index * p.window_block + token) * columns], values, columns);
        }
    }

    StepRows& rows_;
    const StepAddresses& memory_;
    PoolSlots slots_;
    UnitRun runs_[kMaxRuns];
};

}  // namespace dsv4::kernel
