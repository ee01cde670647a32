// RoPE rows of a step's tokens, and of the groups that it completes (docs/spec.md, a step).
#pragma once

#include "device/rope_tile.h"
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
        const int32_t shift = stage == kStageTokenRope ? 0 : stage == kStageRope ? kShiftC4 : kShiftC128;
        const BlockShare share = part.uneven_share(rope_entries(p, stage), rows_.total(shift), kRopeTimes, 1);
        rows_.next_stage();
        tile_.start(p, memory_, stage, shift);
        const uint32_t tile_rows = static_cast<uint32_t>(kScratchElems) / tile_.row_words() - 1;
        tile_.place(rows_.scratch(), tile_rows);
        runs_.start(rows_, shift, share, tile_rows, 1);
        while (runs_.next_tile()) {
            order<AscendC::HardEvent::MTE3_MTE2>();
            order<AscendC::HardEvent::MTE3_V>();
            for (uint32_t i = 0; i < runs_.count(); ++i) {
                const UnitRun& run = runs_[i];
                const uint32_t lanes = static_cast<uint32_t>(run.lanes);
                if (run.empty()) {
                    tile_.repeat_first_rows(run.area, lanes);
                } else {
                    // Areas follow each other without gaps, as entries do.
                    tile_.fetch(run.first << shift, lanes, run.area, runs_.entry() + run.area, rows_.errors());
                }
            }
            order<AscendC::HardEvent::MTE2_MTE3>();
            order<AscendC::HardEvent::V_MTE3>();
            tile_.store(runs_.entry(), runs_.used());
        }
    }

  private:
    StepRows& rows_;
    const StepAddresses& memory_;
    RowRuns runs_;
    RopeTile tile_;
};

}  // namespace dsv4::kernel
