// RoPE rows of a tile of draft steps: 16-bit units that only MTE2 and MTE3 touch, but for the row of dummies, which V
// repeats.
#pragma once

#include "device/memory.h"
#include "device/pipes.h"
#include "device/repeat_row.h"
#include "ops/draft_steps/draft_steps_index.h"

namespace dsv4::kernel {

// Rows of all steps in one tensor of cosines and one of sines, [S, N, D].
class StackedRows {
  public:
    __aicore__ inline StackedRows(uint64_t cos, uint64_t sin, const DraftStepsParams& p) : p_(p) {
        const uint64_t elems = static_cast<uint64_t>(draft_rope_halves(draft_output(p.num_steps, 0, p), p));
        rows_[0] = global<int16_t>(at(cos), elems);
        rows_[1] = global<int16_t>(at(sin), elems);
    }

    // Of table 0 or 1 in a step, from an entry on.
    __aicore__ inline GlobalTensor<int16_t> from(uint32_t table, uint32_t step, int64_t entry) const {
        return rows_[table][static_cast<uint64_t>(draft_rope_halves(draft_output(step, entry, p_), p_))];
    }

  private:
    const DraftStepsParams& p_;
    GlobalTensor<int16_t> rows_[2];
};

class DraftRope {
  public:
    // other_elems: of UB, beside a tile's, that are somebody's.
    __aicore__ inline DraftRope(AscendC::TPipe* pipe, const DraftStepsParams& p, int64_t other_elems = 0) : p_(p) {
        if (p.rope_dim > 0) {
            row_ = static_cast<uint32_t>(draft_rope_halves(1, p));
            pitch_ = static_cast<uint32_t>(draft_rope_pitch_bytes(p) / 2);
            tile_rows_ = static_cast<uint32_t>(draft_rope_tile_rows(p, other_elems));
            pipe->InitBuffer(buffer_, 2 * (tile_rows_ + 1) * pitch_ * static_cast<uint32_t>(sizeof(int16_t)));
        }
    }

    // cos, sin: [max_pos, D], until the next call. Fetches what dummies get; the caller orders V before, and MTE2 and V
    // before the first tile.
    __aicore__ inline void start(uint64_t cos, uint64_t sin) {
        const uint64_t elems = static_cast<uint64_t>(draft_rope_halves(p_.max_context_len, p_));
        tables_[0] = global<int16_t>(at(cos), elems);
        tables_[1] = global<int16_t>(at(sin), elems);
        for (uint32_t table = 0; p_.rope_dim > 0 && table < 2; ++table) {
            load(dummy_row(table), tables_[table], row_);
        }
    }

    // Rows [first_row, first_row + rows) of every step, in areas of as many steps and then as many rows as fit.
    // starts: int32, of the entries of these rows; latest_start: the greatest of them. out: see StackedRows.
    template <typename Outputs>
    __aicore__ inline void write(int64_t first_row, uint32_t rows, const LocalTensor<int32_t>& starts,
                                 int64_t latest_start, const Outputs& out) {
        if (p_.rope_dim == 0) {
            return;
        }
        starts_ = starts;
        latest_start_ = latest_start;
        const uint32_t num_steps = static_cast<uint32_t>(p_.num_steps);
        const uint32_t steps = min_of(num_steps, tile_rows_);
        const uint32_t area_rows = tile_rows_ / steps;
        for (uint32_t step = 0; step < num_steps; step += steps) {
            const uint32_t area_steps = min_of(steps, num_steps - step);
            for (uint32_t row = 0; row < rows; row += area_rows) {
                write_area(first_row, row, min_of(area_rows, rows - row), step, area_steps, out);
            }
        }
    }

  private:
    // [steps, rows] RoPE rows of both tables. Those of a request are fetched once and stored topk times.
    template <typename Outputs>
    __aicore__ inline void write_area(int64_t first_row, uint32_t row, uint32_t rows, uint32_t step, uint32_t steps,
                                      const Outputs& out) {
        order<AscendC::HardEvent::MTE3_MTE2>();
        order<AscendC::HardEvent::MTE3_V>();
        // One of the tile's drafts may be a dummy in these steps.
        if (live_steps(latest_start_, p_) < static_cast<int64_t>(step + steps)) {
            for (uint32_t table = 0; table < 2; ++table) {
                repeat_row(tile(table, 0), dummy_row(table), steps * rows, pitch_);
            }
            order<AscendC::HardEvent::V_MTE2>();
        }
        for (uint32_t i = 0; i < rows; ++i) {
            fetch(row + i, i, rows, step, steps);
        }
        // V, where it filled the area, came before MTE2.
        order<AscendC::HardEvent::MTE2_MTE3>();
        for (uint32_t done = 0; done < steps; ++done) {
            for (int32_t draft = 0; draft < p_.topk; ++draft) {
                store((first_row + row) * p_.topk + draft, rows, step + done, done * rows, out);
            }
        }
    }

    __aicore__ inline int64_t start_of(uint32_t row) { return starts_.GetValue(row * static_cast<uint32_t>(p_.topk)); }

    // The rows of one request's live drafts follow each other in the tables.
    __aicore__ inline void fetch(uint32_t row, uint32_t area_row, uint32_t area_rows, uint32_t step, uint32_t steps) {
        const int64_t start = start_of(row);
        const int64_t live = min_of<int64_t>(steps, live_steps(start, p_) - step);
        if (live <= 0) {
            return;
        }
        const uint64_t from = static_cast<uint64_t>(draft_rope_halves(start + step, p_));
        for (uint32_t table = 0; table < 2; ++table) {
            load_rows(tile(table, area_row), tables_[table][from], static_cast<uint32_t>(live), row_, 0,
                      area_rows * pitch_);
        }
    }

    // One draft of every request of an area in one step; the last group of dummies may be cut off.
    template <typename Outputs>
    __aicore__ inline void store(int64_t entry, uint32_t rows, uint32_t step, uint32_t area_row, const Outputs& out) {
        if (entry >= p_.num_entries) {
            return;
        }
        const uint32_t count =
            static_cast<uint32_t>(min_of<int64_t>(rows, ceil_div<int64_t>(p_.num_entries - entry, p_.topk)));
        for (uint32_t table = 0; table < 2; ++table) {
            store_strided_rows(out.from(table, step, entry), tile(table, area_row), count, row_,
                               draft_rope_halves(p_.topk, p_), pitch_);
        }
    }

    __aicore__ inline LocalTensor<int16_t> dummy_row(uint32_t table) {
        return buffer_.Get<int16_t>()[table * (tile_rows_ + 1) * pitch_];
    }

    __aicore__ inline LocalTensor<int16_t> tile(uint32_t table, uint32_t area_row) {
        return buffer_.Get<int16_t>()[(table * (tile_rows_ + 1) + 1 + area_row) * pitch_];
    }

    const DraftStepsParams& p_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    GlobalTensor<int16_t> tables_[2];
    LocalTensor<int32_t> starts_;
    int64_t latest_start_ = 0;
    uint32_t row_ = 0;        // 16-bit units of a row
    uint32_t pitch_ = 0;      // of two rows in UB, 16-bit units
    uint32_t tile_rows_ = 0;  // of one table
};

}  // namespace dsv4::kernel
