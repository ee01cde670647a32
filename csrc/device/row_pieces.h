// A block's share of a flat list that consists of the intervals of many rows, cut into pieces of one row each. Each
// piece gets an area of a tile in UB that starts at a 32-byte boundary, whatever its length.
#pragma once

#include "common/step_launch.h"
#include "common/uneven_share.h"
#include "device/memory.h"

namespace dsv4::kernel {

constexpr uint32_t kTilePieces = 128;

// The rows of a flat list, an int32 each.
struct FlatRows {
    LocalTensor<int32_t> prefix;    // entries before each row, and of all rows
    LocalTensor<int32_t> requests;  // of which each row is an interval
    LocalTensor<int32_t> starts;    // where the interval starts, in raw tokens
    int32_t num_rows;
    int32_t unit_shift;  // log2 of the raw tokens of an entry
};

struct Piece {
    int64_t entry;  // of the flat list
    int64_t request;
    int64_t unit;
    uint32_t units;
    uint32_t area;  // where the piece lies in the tile
};

class RowPieces {
  public:
    __aicore__ inline void start(const FlatRows& rows, const BlockShare& share, int64_t tile_units) {
        rows_ = rows;
        entry_ = share.begin;
        end_ = share.end;
        tile_units_ = tile_units;
        if (entry_ < end_) {
            row_ = first_row();
            row_end_ = prefix(row_ + 1);
            load_row(entry_ - prefix(row_));
        }
    }

    // Cuts the next tile; false when the share is done.
    __aicore__ inline bool next_tile() {
        count_ = 0;
        used_ = 0;
        while (entry_ < end_ && count_ < kTilePieces && used_ < tile_units_) {
            if (entry_ >= row_end_) {
                next_row();
            }
            const int64_t units = min_of<int64_t>(min_of(end_, row_end_) - entry_, tile_units_ - used_);
            pieces_[count_++] =
                Piece{entry_, request_, unit_, static_cast<uint32_t>(units), static_cast<uint32_t>(used_)};
            unit_ += units;
            used_ += (units + kLaneElems - 1) & -kLaneElems;
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
    __aicore__ inline int64_t prefix(int32_t row) const { return rows_.prefix.GetValue(static_cast<uint32_t>(row)); }

    // Where the row's next entry lies in its request.
    __aicore__ inline void load_row(int64_t offset) {
        const uint32_t row = static_cast<uint32_t>(row_);
        request_ = rows_.requests.GetValue(row);
        unit_ = (rows_.starts.GetValue(row) >> rows_.unit_shift) + offset;
    }

    // Goes on to the row of the next entry, which is its first. Few rows complete a group, so that those without any
    // are not walked through.
    __aicore__ inline void next_row() {
        ++row_;
        row_end_ = prefix(row_ + 1);
        if (entry_ >= row_end_) {
            row_ = find(row_, rows_.num_rows + 1);
            row_end_ = prefix(row_ + 1);
        }
        load_row(0);
    }

    // Where all rows are equally long, two looks tell that it is the expected one.
    __aicore__ inline int32_t first_row() const {
        const int32_t expected = static_cast<int32_t>(entry_ * rows_.num_rows / prefix(rows_.num_rows));
        if (prefix(expected) > entry_) {
            return find(0, expected);
        }
        return prefix(expected + 1) > entry_ ? expected : find(expected + 1, rows_.num_rows + 1);
    }

    // The row from `low` on, before `high`, that has the next entry.
    __aicore__ inline int32_t find(int32_t low, int32_t high) const {
        while (high - low > 1) {
            const int32_t middle = (low + high) / 2;
            if (prefix(middle) <= entry_) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return low;
    }

    FlatRows rows_;
    int32_t row_ = 0;
    int64_t row_end_ = 0;
    int64_t request_ = 0;
    int64_t unit_ = 0;  // of the next entry
    int64_t entry_ = 0;
    int64_t end_ = 0;
    int64_t tile_units_ = 0;
    Piece pieces_[kTilePieces];
    uint32_t count_ = 0;
    int64_t used_ = 0;
};

}  // namespace dsv4::kernel
