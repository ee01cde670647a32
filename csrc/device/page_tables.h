// Page tables of a step. An entry is the slot of a page's first unit, shifted: MTE2 brings every P-th entry of a
// request table's row into a 32-byte block of its own, over a fill value; V gathers the first element of each block.
// Pages of one slot are entries of the request table as they are, and come one next to the other.
#pragma once

#include "common/page_spans.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class PageTables {
  public:
    __aicore__ inline PageTables(StepRows& rows, const StepMetadataParams& p)
        : rows_(rows),
          p_(p),
          offsets_bytes_(rows.scratch()),
          pages_(rows.scratch()[kPageTileEntries]),
          blocks_(rows.scratch()[2 * kPageTileEntries]) {}

    // Once, before the first table.
    __aicore__ inline void prepare() {
        rows_.next_stage();
        AscendC::Muls(offsets_bytes_, rows_.iota(), static_cast<int32_t>(kUbBlockBytes),
                      static_cast<int32_t>(kPageTileEntries));
    }

    // table: int32 slots of `pool`; out: int32 [B, columns].
    __aicore__ inline void write(int32_t pool, GM_ADDR table, GM_ADDR out) {
        const PageTableShape shape = page_table_shape(pool, p_);
        const int64_t num_rows = rows_.params().num_rows;
        if (!pool_exists(shape.row_elems)) {
            return;
        }
        pool_ = pool;
        row_elems_ = shape.row_elems;
        columns_ = shape.columns;
        table_ = global<int32_t>(table, static_cast<uint64_t>(rows_.params().max_requests * shape.row_elems));
        out_ = global<int32_t>(out, static_cast<uint64_t>(num_rows * columns_));
        const int64_t chunks = ceil_div<int64_t>(columns_, kPageTileEntries);
        pitch_ = static_cast<uint32_t>(round_up<int64_t>(min_of<int64_t>(columns_, kPageTileEntries), kLaneElems));
        const int64_t tile_rows = chunks == 1 ? kPageTileEntries / pitch_ : 1;
        const BlockShare share = block_share(num_rows * chunks, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        int64_t row = share.begin / chunks;
        int64_t chunk = share.begin % chunks;
        for (int64_t unit = share.begin; unit < share.end;) {
            const int64_t rows = min_of(tile_rows, share.end - unit);
            tile(row, static_cast<uint32_t>(rows), chunk * kPageTileEntries);
            unit += rows;
            if (++chunk == chunks) {
                chunk = 0;
                row += rows;
            }
        }
    }

  private:
    // Entries [first_column, + a tile) of some rows.
    __aicore__ inline void tile(int64_t first_row, uint32_t rows, int64_t first_column) {
        const int64_t columns = min_of<int64_t>(kPageTileEntries, columns_ - first_column);
        fill(first_row, rows, first_column);
        order<AscendC::HardEvent::V_MTE2>();
        for (uint32_t i = 0; i < rows; ++i) {
            const PageSpan span = page_span(pool_, rows_.row(first_row + i), p_);
            const int64_t begin = max_of(span.begin, first_column);
            const int64_t end = min_of(span.end, first_column + columns);
            if (begin < end) {
                const int64_t entry =
                    rows_.request(first_row + i) * row_elems_ + first_unit_of_page(begin, p_.page_shift);
                fetch(i, static_cast<uint32_t>(begin - first_column), table_[static_cast<uint64_t>(entry)],
                      static_cast<uint32_t>(end - begin));
            }
        }
        order<AscendC::HardEvent::MTE2_V>();
        if (!pages_are_slots()) {
            compact(rows * pitch_);
        }
        order<AscendC::HardEvent::V_MTE3>();
        store_rows(out_[static_cast<uint64_t>(first_row * columns_ + first_column)], pages_, rows,
                   static_cast<uint32_t>(columns), pitch_);
    }

    __aicore__ inline bool pages_are_slots() const { return p_.page_shift == 0; }

    __aicore__ inline int32_t filler() const { return is_state_pool(pool_) ? kSkipPage : kNoPage; }

    // What stands where no page is named. Shifting keeps both fill values.
    __aicore__ inline void fill(int64_t first_row, uint32_t rows, int64_t first_column) {
        LocalTensor<int32_t> target = blocks_;
        uint32_t entry_elems = kLaneElems;
        if (pages_are_slots()) {
            order<AscendC::HardEvent::MTE3_V>();
            target = pages_;
            entry_elems = 1;
        }
        AscendC::Duplicate(target, filler(), static_cast<int32_t>(rows * pitch_ * entry_elems));
        if (pool_ != kSwa || first_column != 0) {
            return;
        }
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i < rows; ++i) {
            // Attention takes a row whose first entry is -1 for a broken one; padding gets the reserved page instead.
            if (is_padding(rows_.row(first_row + i))) {
                AscendC::Duplicate(target[i * pitch_ * entry_elems], int32_t{kSkipPage},
                                   static_cast<int32_t>(entry_elems));
            }
        }
    }

    // Entries of `pages` pages from column `column` of a row on. from: the slot of the first page's first unit.
    __aicore__ inline void fetch(uint32_t row, uint32_t column, const GlobalTensor<int32_t>& from, uint32_t pages) {
        if (pages_are_slots()) {
            // Up to the 32-byte boundaries around, nothing is named.
            const uint32_t left = column % static_cast<uint32_t>(kLaneElems);
            load_padded(pages_[row * pitch_ + column - left], from, pages, left, filler());
        } else {
            load_rows(blocks_[(row * pitch_ + column) * static_cast<uint32_t>(kLaneElems)], from, pages, 1,
                      (1u << p_.page_shift) - 1, kLaneElems);
        }
    }

    __aicore__ inline void compact(uint32_t entries) {
        order<AscendC::HardEvent::MTE3_V>();
        AscendC::Gather(pages_, blocks_, offsets_bytes_.ReinterpretCast<uint32_t>(), uint32_t{0}, entries);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftRight(pages_, pages_, p_.page_shift, static_cast<int32_t>(entries));
    }

    StepRows& rows_;
    const StepMetadataParams& p_;
    LocalTensor<int32_t> offsets_bytes_, pages_, blocks_;
    GlobalTensor<int32_t> table_, out_;
    int32_t pool_ = kSwa;
    int64_t row_elems_ = 0;
    int64_t columns_ = 0;
    uint32_t pitch_ = 0;  // entries between two rows of a tile
};

}  // namespace dsv4::kernel
