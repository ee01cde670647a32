// Page tables of a step. Where a table holds pages one next to the other, a row's live span is a contiguous copy over a
// fill value. Other entries come one by one, each into a 32-byte block of its own, and V gathers the first element of
// each block: slots of pages' first units, ids of 64 bits, rows of a ring that begin again. A mapping is read twice
// that way.
#pragma once

#include "device/step_rows.h"

namespace dsv4::kernel {

// copies: every table that is asked for holds pages of int32 one next to the other, so that nothing is gathered.
template <bool copies>
class PageTables {
  public:
    // scratch: kScratchElems.
    __aicore__ inline PageTables(StepRows& rows, const StepAddresses& memory, const LocalTensor<int32_t>& scratch)
        : rows_(rows),
          p_(rows.step()),
          memory_(memory),
          offsets_bytes_(scratch),
          pages_(scratch[kPageTileEntries]),
          blocks_(scratch[2 * kPageTileEntries]),
          nothing_(scratch[(2 + kLaneElems) * kPageTileEntries]) {
        if constexpr (!copies) {
            AscendC::Muls(offsets_bytes_, rows_.iota(), static_cast<int32_t>(kUbBlockBytes),
                          static_cast<int32_t>(kPageTileEntries));
        }
    }

    // Of all pools, rows of many entries.
    __aicore__ inline void write_long_rows() {
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            if (has_long_rows(p_, pool)) {
                write_long_rows(pool);
            }
        }
    }

    // Of all pools, the block's parts of the others.
    __aicore__ inline void write() {
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            write(pool);
        }
    }

  private:
    // Entries [column, column + entries) of a row of the output, which the tile holds from `area` on, and those of them
    // that name pages, none for padding. Of a long row, entries [begin, column) before and up to `end` behind name
    // none.
    struct Stretch {
        int32_t row;
        int32_t column;
        uint32_t entries;
        uint32_t area;
        PageSpan pages;
        int32_t begin, end;
    };
    static constexpr uint32_t kMostStretches = 128;

    // int32 [B, columns] of a pool, of whose rows blocks take parts.
    __aicore__ inline void write(int32_t pool) {
        const StagePart part = rows_.part(kStageOtherPages + pool);
        if (part.empty()) {
            return;
        }
        start(pool);
        const BlockShare share = part.share(p_.rows.num_rows, 1);
        const uint32_t columns = static_cast<uint32_t>(columns_);
        const uint32_t pitch = round_up<uint32_t>(columns, kLaneElems);
        const int64_t tile_rows = min_of<int64_t>(kMostStretches, tile_entries_ / pitch);
        for (int64_t row = share.begin; row < share.end; row += tile_rows) {
            const uint32_t count = static_cast<uint32_t>(min_of(tile_rows, share.end - row));
            begin_tile();
            for (uint32_t i = 0; i < count; ++i) {
                const StepRow step = rows_.row(row + i);
                add(row + i, page_span(pool, step, p_), 0, columns);
            }
            fetch_tile();
            finish_tile();
            store_strided_rows(out_[entry_elems(row, 0)], pages_, count, columns, p_.page_row_elems[pool], pitch);
        }
    }

    // The same of rows of many entries: a block takes one row, then another; the next table goes on with the block
    // whose turn it is. What names no page is stored from one area while the pages are fetched.
    __aicore__ inline void write_long_rows(int32_t pool) {
        start(pool);
        fill_nothing();
        const int64_t num_rows = p_.rows.num_rows;
        const int64_t blocks = AscendC::GetBlockNum();
        int64_t row = (AscendC::GetBlockIdx() + blocks - turn_) % blocks;
        int64_t column = 0;  // what comes next of the row
        while (row < num_rows) {
            begin_tile();
            while (row < num_rows && count_ < kMostStretches && used_ < tile_entries_) {
                column = add_stretch(row, column);
                if (column == columns_) {
                    row += blocks;
                    column = 0;
                }
            }
            if (used_ != 0) {
                fetch_tile();
            }
            for (uint32_t i = 0; i < count_; ++i) {
                const Stretch& stretch = stretches_[i];
                store_nothing(stretch.row, stretch.begin, stretch.column);
                store_nothing(stretch.row, stretch.column + stretch.entries, stretch.end);
            }
            if (used_ != 0) {
                finish_tile();
            }
            for (uint32_t i = 0; i < count_; ++i) {
                const Stretch& stretch = stretches_[i];
                if (stretch.entries != 0) {
                    store(out_[entry_elems(stretch.row, stretch.column)], pages_[stretch.area], stretch.entries);
                }
            }
        }
        turn_ = (turn_ + num_rows) % blocks;
    }

    // The area that names no page, unless it is as the pool has it.
    __aicore__ inline void fill_nothing() {
        const int32_t dummy = p_.dummy_pages[pool_];
        if (has_nothing_ && dummy == nothing_page_) {
            return;
        }
        has_nothing_ = true;
        nothing_page_ = dummy;
        order<AscendC::HardEvent::MTE3_V>();
        AscendC::Duplicate(nothing_, dummy, static_cast<int32_t>(kNothingEntries));
        order<AscendC::HardEvent::V_MTE3>();
    }

    __aicore__ inline void start(int32_t pool) {
        columns_ = p_.page_columns[pool];
        const PoolAddress& a = p_.pools[pool];
        pool_ = pool;
        source_ = a.kind == kMapped ? a.base : pool;
        source_table_ = table(source_);
        contiguous_ = copies || (a.kind == kPages && a.is_int64 == 0 && columns_ <= a.columns);
        // What needs no 32-byte block an entry has the place of the blocks.
        tile_entries_ = static_cast<uint32_t>(contiguous_ ? (1 + kLaneElems) * kPageTileEntries : kPageTileEntries);
        out_ =
            global<int32_t>(at(memory_.fields[kFieldPageTable + pool]),
                            static_cast<uint64_t>(int64_t{p_.rows.num_rows - 1} * p_.page_row_elems[pool] + columns_));
    }

    __aicore__ inline uint64_t entry_elems(int64_t row, int64_t column) const {
        return static_cast<uint64_t>(row * p_.page_row_elems[pool_] + column);
    }

    // Of a long row, the entries from `begin` on, as far as the tile has room for those that name pages. Returns where
    // they end.
    __aicore__ inline int64_t add_stretch(int64_t row, int64_t begin) {
        const StepRow step = rows_.row(row);
        const PageSpan pages = page_span(pool_, step, p_);
        // The first entry of a padding row may be another page.
        const bool starts_otherwise = pool_ == kSwa && is_padding(step);
        const int64_t first = starts_otherwise ? 0 : min_of(pages.begin, pages.end) / kLaneElems * kLaneElems;
        const int64_t last = starts_otherwise ? 1 : max_of(first, pages.end);
        const int64_t column = max_of(begin, first);
        const int64_t entries = min_of<int64_t>(last - column, tile_entries_ - used_);
        Stretch& stretch = add(row, pages, column, static_cast<uint32_t>(entries));
        stretch.begin = static_cast<int32_t>(begin);
        stretch.end = static_cast<int32_t>(column + entries == last ? columns_ : column + entries);
        return stretch.end;
    }

    __aicore__ inline void store_nothing(int64_t row, int64_t begin, int64_t end) const {
        while (begin < end) {
            const int64_t entries = min_of(end - begin, kNothingEntries);
            store(out_[entry_elems(row, begin)], nothing_, static_cast<uint32_t>(entries));
            begin += entries;
        }
    }

    __aicore__ inline void begin_tile() {
        count_ = 0;
        used_ = 0;
    }

    // span: of the whole row.
    __aicore__ inline Stretch& add(int64_t row, const PageSpan& span, int64_t column, uint32_t entries) {
        Stretch& stretch = stretches_[count_++];
        stretch.row = static_cast<int32_t>(row);
        stretch.column = static_cast<int32_t>(column);
        stretch.entries = entries;
        stretch.area = used_;
        stretch.pages = PageSpan{max_of(span.begin, column), min_of(span.end, column + entries)};
        used_ += round_up<uint32_t>(entries, kLaneElems);
        return stretch;
    }

    // Has the entries of the stretches added since the last tile fetched.
    __aicore__ inline void fetch_tile() {
        order<AscendC::HardEvent::MTE3_V>();
        fill();
        order<AscendC::HardEvent::V_MTE2>();
        for (uint32_t i = 0; i < count_; ++i) {
            const Stretch& stretch = stretches_[i];
            if (stretch.pages.begin < stretch.pages.end) {
                fetch(stretch, rows_.request(stretch.row), stretch.pages);
            }
        }
    }

    // For MTE3.
    __aicore__ inline void finish_tile() {
        order<AscendC::HardEvent::MTE2_V>();
        if constexpr (!copies) {
            if (!contiguous_) {
                pages_of_entries();
            }
        }
        order<AscendC::HardEvent::V_MTE3>();
    }

    __aicore__ inline void pages_of_entries() {
        gather();
        if (p_.pools[pool_].kind == kMapped) {
            map();
        }
        if (entry_shift() != 0) {
            AscendC::ShiftRight(pages_, pages_, entry_shift(), static_cast<int32_t>(used_));
        }
    }

    // From an entry to the page: slots, unlike pages, are shifted once they are gathered.
    __aicore__ inline int32_t entry_shift() const { return entry_page_shift(p_.pools[pool_]); }

    // The dummy, before that shift.
    __aicore__ inline int32_t filler() const { return p_.dummy_pages[pool_] * (1 << entry_shift()); }

    // What stands where no page is named, in each entry of the tile or in its 32-byte block.
    __aicore__ inline void fill() {
        const uint32_t elems = contiguous_ ? 1 : static_cast<uint32_t>(kLaneElems);
        const LocalTensor<int32_t> target = contiguous_ ? pages_ : blocks_;
        AscendC::Duplicate(target, filler(), static_cast<int32_t>(used_ * elems));
        if (pool_ != kSwa) {
            return;
        }
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i < count_; ++i) {
            if (stretches_[i].column == 0 && stretches_[i].pages.end == 0) {
                AscendC::Duplicate(target[stretches_[i].area * elems], kPaddingPage, static_cast<int32_t>(elems));
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

    // Of the entry of page `page` in a stretch.
    __aicore__ inline LocalTensor<int32_t> block(const Stretch& stretch, int64_t page) const {
        return blocks_[(stretch.area + static_cast<uint32_t>(page - stretch.column)) *
                       static_cast<uint32_t>(kLaneElems)];
    }

    __aicore__ inline void fetch(const Stretch& stretch, int64_t request, const PageSpan& span) {
        if constexpr (!copies) {
            if (!contiguous_) {
                fetch_entries(stretch, request, span);
                return;
            }
        }
        // Up to the 32-byte boundaries around, nothing is named.
        const uint32_t column = static_cast<uint32_t>(span.begin - stretch.column);
        const uint32_t left = column % static_cast<uint32_t>(kLaneElems);
        load_padded(pages_[stretch.area + column - left],
                    source_table_[static_cast<uint64_t>(page_entry_elems(request, span.begin, p_.pools[source_]))],
                    static_cast<uint32_t>(span.end - span.begin), left, filler());
    }

    __aicore__ inline void fetch_entries(const Stretch& stretch, int64_t request, const PageSpan& span) {
        const PoolAddress& a = p_.pools[source_];
        if (a.kind == kPages) {
            fetch_pages(stretch, request, span, a);
            return;
        }
        const int64_t unit = first_unit_of_page(span.begin, p_.pools[pool_].page_shift);
        load_strided_rows(block(stretch, span.begin),
                          source_table_[static_cast<uint64_t>(slot_entry_elems(request, unit, a)) * words(a)],
                          static_cast<uint32_t>(span.end - span.begin), 1,
                          (unit_columns(a) * static_cast<int64_t>(words(a))) << p_.pools[pool_].page_shift, kLaneElems);
    }

    // Of a table of pages: the page itself, or that of a base whose pages are of another size.
    __aicore__ inline void fetch_pages(const Stretch& stretch, int64_t request, const PageSpan& span,
                                       const PoolAddress& a) {
        for (int64_t page = span.begin; page < span.end;) {
            const int64_t source_page = source_page_of(page, a);
            const int64_t run =
                source_ == pool_ ? min_of<int64_t>(span.end - page, a.columns - page_column(page, a)) : 1;
            load_strided_rows(
                block(stretch, page),
                source_table_[static_cast<uint64_t>(page_entry_elems(request, source_page, a)) * words(a)],
                static_cast<uint32_t>(run), 1, static_cast<int64_t>(words(a)), kLaneElems);
            page += run;
        }
    }

    // Page of the source pool in which page `page` of the pool starts.
    __aicore__ inline int64_t source_page_of(int64_t page, const PoolAddress& a) const {
        return page_of(first_unit_of_page(page, p_.pools[pool_].page_shift), a.page_shift);
    }

    __aicore__ inline void gather() {
        AscendC::Gather(pages_, blocks_, offsets_bytes_.ReinterpretCast<uint32_t>(), uint32_t{0}, used_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // body(stretch, page) for every page that the tile names.
    template <typename Body>
    __aicore__ inline void each_page(const Body& body) {
        for (uint32_t i = 0; i < count_; ++i) {
            const PageSpan& span = stretches_[i].pages;
            for (int64_t page = span.begin; page < span.end; ++page) {
                body(stretches_[i], page);
            }
        }
    }

    // pages_ holds what the base says of each page's first unit; the mapping's entries at these slots take its place,
    // the dummy where there is none.
    __aicore__ inline void map() {
        const PoolAddress& a = p_.pools[pool_];
        const PoolAddress& base = p_.pools[source_];
        fill();
        order<AscendC::HardEvent::V_S>();
        order<AscendC::HardEvent::V_MTE2>();
        each_page([&](const Stretch& stretch, int64_t page) {
            const uint32_t place = stretch.area + static_cast<uint32_t>(page - stretch.column);
            const int64_t slot = base_slot(pages_.GetValue(place), page, base);
            if (slot > 0 && slot < a.row_elems) {
                load(block(stretch, page), table(pool_)[static_cast<uint64_t>(slot) * words(a)], 1);
            }
        });
        order<AscendC::HardEvent::MTE2_S>();
        each_page([&](const Stretch& stretch, int64_t page) {
            if (block(stretch, page).GetValue(0) <= 0) {
                block(stretch, page).SetValue(0, filler());
            }
        });
        order<AscendC::HardEvent::S_V>();
        gather();
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
    int64_t turn_ = 0;  // the block that writes the next long row
    bool has_nothing_ = false;
    int32_t nothing_page_ = 0;  // what the area names instead of a page
    uint32_t tile_entries_ = 0;
    Stretch stretches_[kMostStretches];
    uint32_t count_ = 0;
    uint32_t used_ = 0;  // entries of the tile, gaps between stretches included
};

}  // namespace dsv4::kernel
