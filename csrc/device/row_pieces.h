// A block's share of a flat output that consists of the intervals of many rows, cut into pieces of one row each. Each
// piece gets an area of a tile in UB that starts at a 32-byte boundary, whatever its length.
#pragma once

#include "common/step_launch.h"
#include "common/uneven_share.h"
#include "device/memory.h"

namespace dsv4::kernel {

constexpr uint32_t kTilePieces = 128;

struct Piece {
    int64_t entry;   // of the flat output
    int32_t row;     // the number of rows for entries behind the last row
    int32_t offset;  // of the piece in its row
    uint32_t units;
    uint32_t area;  // where the piece lies in the tile
};

class RowPieces {
  public:
    // prefix: int32 [num_rows + 1], entries before each row. area_step: areas start at multiples of it, a power of two.
    __aicore__ inline void start(const LocalTensor<int32_t>& prefix, int64_t num_rows, const BlockShare& share,
                                 int64_t tile_units, int64_t area_step) {
        prefix_ = prefix;
        num_rows_ = static_cast<int32_t>(num_rows);
        entry_ = share.begin;
        end_ = share.end;
        tile_units_ = tile_units;
        area_step_ = area_step;
        begin_at(find(0, entry_));
    }

    // Cuts the next tile; false when the share is done.
    __aicore__ inline bool next_tile() {
        count_ = 0;
        used_ = 0;
        while (entry_ < end_ && count_ < kTilePieces && used_ < tile_units_) {
            if (entry_ >= row_end_) {
                next_row();
                continue;
            }
            const int64_t units = min_of<int64_t>(min_of(end_, row_end_) - entry_, tile_units_ - used_);
            pieces_[count_++] = Piece{entry_, row_, static_cast<int32_t>(entry_ - row_begin_),
                                      static_cast<uint32_t>(units), static_cast<uint32_t>(used_)};
            used_ += (units + area_step_ - 1) & -area_step_;
            entry_ += units;
        }
        return count_ > 0;
    }

    __aicore__ inline uint32_t count() const { return count_; }
    __aicore__ inline const Piece& operator[](uint32_t piece) const { return pieces_[piece]; }

    // Units of the tile in use, gaps between areas included.
    __aicore__ inline uint32_t used() const { return static_cast<uint32_t>(used_); }

    // Pieces from `piece` on that are equally long: one copy moves them all.
    __aicore__ inline uint32_t equal_pieces(uint32_t piece) const {
        uint32_t end = piece + 1;
        while (end < count_ && pieces_[end].units == pieces_[piece].units) {
            ++end;
        }
        return end - piece;
    }

  private:
    // Behind the last row there is no end.
    __aicore__ inline void end_row() {
        row_end_ = row_ < num_rows_ ? prefix_.GetValue(static_cast<uint32_t>(row_ + 1)) : INT64_MAX;
    }

    __aicore__ inline void begin_at(int32_t row) {
        row_ = row;
        row_begin_ = prefix_.GetValue(static_cast<uint32_t>(row));
        end_row();
    }

    // Goes on to the row of the next entry. Few rows complete a group, so that those without any are not walked through.
    __aicore__ inline void next_row() {
        ++row_;
        row_begin_ = row_end_;
        end_row();
        if (entry_ >= row_end_) {
            begin_at(find(row_, entry_));
        }
    }

    // The last row from `low` on that starts at `entry` or before.
    __aicore__ inline int32_t find(int32_t low, int64_t entry) const {
        int32_t high = num_rows_ + 1;
        while (high - low > 1) {
            const int32_t middle = (low + high) / 2;
            if (prefix_.GetValue(static_cast<uint32_t>(middle)) <= entry) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return low;
    }

    LocalTensor<int32_t> prefix_;
    int32_t num_rows_ = 0;
    int32_t row_ = 0;
    int64_t row_begin_ = 0;
    int64_t row_end_ = 0;
    int64_t entry_ = 0;
    int64_t end_ = 0;
    int64_t tile_units_ = 0;
    int64_t area_step_ = 1;
    Piece pieces_[kTilePieces];
    uint32_t count_ = 0;
    int64_t used_ = 0;
};

}  // namespace dsv4::kernel
