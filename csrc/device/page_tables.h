// Page tables of a step. Where a table holds pages one next to the other, a row's live span is a contiguous copy over a
// fill value. Other entries come one by one, each into a 32-byte block of its own, and V gathers the first element of
// each block: slots of pages' first units, ids of 64 bits, rows of a ring that begin again. A mapping is read twice
// that way.
#pragma once

#include "device/step_rows.h"

namespace dsv4::kernel {

class PageTables {
  public:
    __aicore__ inline PageTables(StepRows& rows, const StepAddresses& memory)
        : rows_(rows),
          p_(rows.step()),
          memory_(memory),
          offsets_bytes_(rows.scratch()),
          pages_(rows.scratch()[kPageTileEntries]),
          blocks_(rows.scratch()[2 * kPageTileEntries]),
          nothing_(rows.scratch()[(2 + kLaneElems) * kPageTileEntries]) {}

    // Once, before the first table.
    __aicore__ inline void prepare() {
        rows_.next_stage();
        AscendC::Muls(offsets_bytes_, rows_.iota(), static_cast<int32_t>(kUbBlockBytes),
                      static_cast<int32_t>(kPageTileEntries));
    }

    // int32 [B, columns] of a pool that is asked for.
    __aicore__ inline void write(int32_t pool) {
        columns_ = p_.page_columns[pool];
        if (columns_ == 0) {
            return;
        }
        const int64_t num_rows = rows_.params().num_rows;
        const PoolAddress& a = p_.pools[pool];
        pool_ = pool;
        source_ = a.kind == kMapped ? a.base : pool;
        source_table_ = table(source_);
        contiguous_ = a.kind == kPages && a.is_int64 == 0 && columns_ <= a.columns;
        out_ = global<int32_t>(at(memory_.fields[kFieldPageTable + pool]),
                               static_cast<uint64_t>((num_rows - 1) * p_.page_row_elems[pool] + columns_));
        pitch_ = static_cast<uint32_t>(round_up<int64_t>(min_of<int64_t>(columns_, kPageTileEntries), kLaneElems));
        if (columns_ > kPageTileEntries) {
            write_long_rows(num_rows);
            return;
        }
        const int64_t tile_rows = kPageTileEntries / pitch_;
        const BlockShare share = rows_.part(kStagePages + pool).share(num_rows, 1);
        for (int64_t row = share.begin; row < share.end; row += tile_rows) {
            tile(row, static_cast<uint32_t>(min_of(tile_rows, share.end - row)), 0);
        }
    }

  private:
    // Entries of a row that name pages and lie in a tile.
    struct TileSpan {
        int64_t begin;
        int64_t end;
    };

    __aicore__ inline TileSpan span_of(int64_t row, int64_t first_column, int64_t columns) {
        const PageSpan span = page_span(pool_, rows_.row(row), p_);
        return TileSpan{max_of(span.begin, first_column), min_of(span.end, first_column + columns)};
    }

    // Rows of several tiles: a block takes one row, then another; the next table goes on with the block whose turn it is.
    __aicore__ inline void write_long_rows(int64_t num_rows) {
        const int64_t blocks = AscendC::GetBlockNum();
        order<AscendC::HardEvent::MTE3_V>();
        AscendC::Duplicate(nothing_, p_.dummy_pages[pool_], static_cast<int32_t>(kNothingEntries));
        order<AscendC::HardEvent::V_MTE3>();
        for (int64_t row = (AscendC::GetBlockIdx() + blocks - turn_) % blocks; row < num_rows; row += blocks) {
            write_long_row(row);
        }
        turn_ = (turn_ + num_rows) % blocks;
    }

    // Tiles where the row names pages; what lies before and behind them is stored from an area that names none.
    __aicore__ inline void write_long_row(int64_t row) {
        const StepRow step = rows_.row(row);
        const PageSpan span = page_span(pool_, step, p_);
        const int64_t live = span.begin < span.end ? span.begin / kLaneElems * kLaneElems : columns_;
        // The first entry of a padding row may be another page.
        const bool starts_with_tile = pool_ == kSwa && is_padding(step);
        for (int64_t column = 0; column < columns_;) {
            const int64_t next = column >= span.end ? columns_ : min_of(columns_, live);
            if (column < next && !(column == 0 && starts_with_tile)) {
                const int64_t entries = min_of(next - column, kNothingEntries);
                store(out_[static_cast<uint64_t>(row * p_.page_row_elems[pool_] + column)], nothing_,
                      static_cast<uint32_t>(entries));
                column += entries;
            } else {
                tile(row, 1, column);
                column += kPageTileEntries;
            }
        }
    }

    // Entries [first_column, + a tile) of some rows.
    __aicore__ inline void tile(int64_t first_row, uint32_t rows, int64_t first_column) {
        const int64_t columns = min_of<int64_t>(kPageTileEntries, columns_ - first_column);
        order<AscendC::HardEvent::MTE3_V>();
        fill(contiguous_ ? pages_ : blocks_, contiguous_ ? 1 : kLaneElems, first_row, rows, first_column);
        order<AscendC::HardEvent::V_MTE2>();
        for (uint32_t i = 0; i < rows; ++i) {
            const TileSpan span = span_of(first_row + i, first_column, columns);
            if (span.begin < span.end) {
                fetch(i, rows_.request(first_row + i), span, first_column);
            }
        }
        order<AscendC::HardEvent::MTE2_V>();
        if (!contiguous_) {
            gather(rows * pitch_);
            if (p_.pools[pool_].kind == kMapped) {
                map(first_row, rows, first_column, columns);
            }
            if (entry_shift() != 0) {
                AscendC::ShiftRight(pages_, pages_, entry_shift(), static_cast<int32_t>(rows * pitch_));
            }
        }
        order<AscendC::HardEvent::V_MTE3>();
        store_strided_rows(out_[static_cast<uint64_t>(first_row * p_.page_row_elems[pool_] + first_column)], pages_,
                           rows, static_cast<uint32_t>(columns), p_.page_row_elems[pool_], pitch_);
    }

    // From an entry to the page: slots, unlike pages, are shifted once they are gathered.
    __aicore__ inline int32_t entry_shift() const {
        const PoolAddress& a = p_.pools[pool_];
        return a.kind == kPages ? 0 : a.page_shift + (a.kind == kSlots ? a.slot_shift : 0);
    }

    // The dummy, before that shift.
    __aicore__ inline int32_t filler() const { return p_.dummy_pages[pool_] * (1 << entry_shift()); }

    // What stands where no page is named. entry_elems: distance between two entries.
    __aicore__ inline void fill(const LocalTensor<int32_t>& target, int64_t entry_elems, int64_t first_row,
                                uint32_t rows, int64_t first_column) {
        const uint32_t elems = static_cast<uint32_t>(entry_elems);
        AscendC::Duplicate(target, filler(), static_cast<int32_t>(rows * pitch_ * elems));
        if (pool_ != kSwa || first_column != 0) {
            return;
        }
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i < rows; ++i) {
            if (is_padding(rows_.row(first_row + i))) {
                AscendC::Duplicate(target[i * pitch_ * elems], kPaddingPage, static_cast<int32_t>(elems));
            }
        }
    }

    __aicore__ inline GlobalTensor<int32_t> table(int32_t pool) const {
        const PoolAddress& a = p_.pools[pool];
        const uint64_t entries = a.kind == kMapped ? static_cast<uint64_t>(a.row_elems)
                                                   : static_cast<uint64_t>(a.row_elems) * (a.requests - 1) + a.columns;
        return global<int32_t>(at(memory_.tables[pool]), entries * words(a));
    }

    // int32 words of an entry; the low one of an entry that fits is the entry.
    __aicore__ inline static uint64_t words(const PoolAddress& a) { return a.is_int64 != 0 ? 2 : 1; }

    __aicore__ inline LocalTensor<int32_t> block(uint32_t row, int64_t column) const {
        return blocks_[(row * pitch_ + static_cast<uint32_t>(column)) * static_cast<uint32_t>(kLaneElems)];
    }

    __aicore__ inline void fetch(uint32_t row, int64_t request, const TileSpan& span, int64_t first_column) {
        const PoolAddress& a = p_.pools[source_];
        const uint32_t column = static_cast<uint32_t>(span.begin - first_column);
        const uint32_t pages = static_cast<uint32_t>(span.end - span.begin);
        if (contiguous_) {
            // Up to the 32-byte boundaries around, nothing is named.
            const uint32_t left = column % static_cast<uint32_t>(kLaneElems);
            load_padded(pages_[row * pitch_ + column - left],
                        source_table_[static_cast<uint64_t>(page_entry_elems(request, span.begin, a))], pages, left,
                        filler());
        } else if (a.kind == kPages) {
            fetch_pages(row, column, request, span, a);
        } else {
            const int64_t unit = first_unit_of_page(span.begin, p_.pools[pool_].page_shift);
            load_strided_rows(block(row, column),
                              source_table_[static_cast<uint64_t>(slot_entry_elems(request, unit, a)) * words(a)],
                              pages, 1, (static_cast<int64_t>(a.unit_columns) * words(a)) << p_.pools[pool_].page_shift,
                              kLaneElems);
        }
    }

    // Of a table of pages: the page itself, or that of a base whose pages are of another size.
    __aicore__ inline void fetch_pages(uint32_t row, uint32_t column, int64_t request, const TileSpan& span,
                                       const PoolAddress& a) {
        for (int64_t page = span.begin; page < span.end;) {
            const int64_t source_page = source_page_of(page, a);
            const int64_t run =
                source_ == pool_ ? min_of<int64_t>(span.end - page, a.columns - page_column(page, a)) : 1;
            load_strided_rows(
                block(row, column + (page - span.begin)),
                source_table_[static_cast<uint64_t>(page_entry_elems(request, source_page, a)) * words(a)],
                static_cast<uint32_t>(run), 1, static_cast<int64_t>(words(a)), kLaneElems);
            page += run;
        }
    }

    // Page of the source pool in which page `page` of the pool starts.
    __aicore__ inline int64_t source_page_of(int64_t page, const PoolAddress& a) const {
        return page_of(first_unit_of_page(page, p_.pools[pool_].page_shift), a.page_shift);
    }

    __aicore__ inline void gather(uint32_t entries) {
        AscendC::Gather(pages_, blocks_, offsets_bytes_.ReinterpretCast<uint32_t>(), uint32_t{0}, entries);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // pages_ holds what the base says of each page's first unit; the mapping's entries at these slots take its place,
    // the dummy where there is none.
    __aicore__ inline void map(int64_t first_row, uint32_t rows, int64_t first_column, int64_t columns) {
        const PoolAddress& a = p_.pools[pool_];
        const PoolAddress& base = p_.pools[source_];
        fill(blocks_, kLaneElems, first_row, rows, first_column);
        order<AscendC::HardEvent::V_S>();
        order<AscendC::HardEvent::V_MTE2>();
        for (uint32_t i = 0; i < rows; ++i) {
            const TileSpan span = span_of(first_row + i, first_column, columns);
            for (int64_t page = span.begin; page < span.end; ++page) {
                const int64_t column = page - first_column;
                const int64_t slot = base_slot(pages_.GetValue(i * pitch_ + static_cast<uint32_t>(column)), page, base);
                if (slot > 0 && slot < a.row_elems) {
                    load(block(i, column), table(pool_)[static_cast<uint64_t>(slot) * words(a)], 1);
                }
            }
        }
        order<AscendC::HardEvent::MTE2_S>();
        for (uint32_t i = 0; i < rows; ++i) {
            const TileSpan span = span_of(first_row + i, first_column, columns);
            for (int64_t page = span.begin; page < span.end; ++page) {
                if (block(i, page - first_column).GetValue(0) <= 0) {
                    block(i, page - first_column).SetValue(0, filler());
                }
            }
        }
        order<AscendC::HardEvent::S_V>();
        gather(rows * pitch_);
    }

    // Slot of the first unit of page `page`, from the base's entry.
    __aicore__ inline int64_t base_slot(int64_t entry, int64_t page, const PoolAddress& base) const {
        if (base.kind == kSlots) {
            return slot_of_entry(entry, base);
        }
        const int64_t unit = first_unit_of_page(page, p_.pools[pool_].page_shift);
        return entry > 0 ? slot_of(entry, unit, base.page_shift) : 0;
    }

    StepRows& rows_;
    const StepParams& p_;
    const StepAddresses& memory_;
    LocalTensor<int32_t> offsets_bytes_, pages_, blocks_, nothing_;
    GlobalTensor<int32_t> out_;
    GlobalTensor<int32_t> source_table_;
    int32_t pool_ = kSwa;
    int32_t source_ = kSwa;  // the pool whose table is read first
    bool contiguous_ = false;
    int64_t columns_ = 0;
    int64_t turn_ = 0;    // the block that writes the next chunk
    uint32_t pitch_ = 0;  // entries between two rows of a tile
};

}  // namespace dsv4::kernel
