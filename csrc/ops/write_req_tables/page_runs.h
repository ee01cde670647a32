// Entries of tables of pages: S cuts the rows into runs of pages, MTE2 fetches the first slot in each page, of which V
// makes the page, and MTE3 stores it.
#pragma once

#include "device/row_pieces.h"
#include "ops/write_req_tables/write_tile.h"

namespace dsv4::kernel {

class PageRuns {
  public:
    __aicore__ inline PageRuns(const WriteReqTablesParams& p, WriteTile& tile) : p_(p), tile_(tile) {}

    // Those of the block's rows in pools of one total.
    __aicore__ inline void write(const FlatRows& rows, uint32_t pools) {
        for (int32_t pool = 0; pools >> pool != 0; ++pool) {
            if ((pools >> pool & 1) == 0) {
                continue;
            }
            // Pools with equally long pages have the first slots of their pages at the same entries of their lists.
            shift_ = p_.pools[pool].page_shift;
            pools_ = 0;
            for (int32_t other = pool; pools >> other != 0; ++other) {
                pools_ |= p_.pools[other].page_shift == shift_ ? pools & uint32_t{1} << other : 0;
            }
            collect(rows);
            flush();
            pools &= ~pools_;
        }
    }

  private:
    static constexpr uint32_t kLane = static_cast<uint32_t>(kLaneElems);

    // Pages of a request that follow each other, and whose first slots lie a page apart in the flat list. Each takes a
    // 32-byte block of the tile, in the order of the runs.
    struct PageRun {
        int32_t request;
        int32_t page;
        uint32_t pages;
    };

    // Slots at equal distances in the flat list, which one copy fetches.
    struct SlotGroup {
        int64_t entry;
        int64_t distance;
        int64_t next;  // the entry of one more
        uint32_t slots;
    };

    __aicore__ inline void collect(const FlatRows& rows) {
        const BlockShare share = block_share(p_.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        const int32_t end = rows.prefix.GetValue(static_cast<uint32_t>(share.end));
        int32_t entry = rows.prefix.GetValue(static_cast<uint32_t>(share.begin));
        for (uint32_t row = static_cast<uint32_t>(share.begin); entry < end; ++row) {
            const int32_t row_end = rows.prefix.GetValue(row + 1);
            if (entry != row_end) {
                add_row(rows.requests.GetValue(row), rows.starts.GetValue(row) >> rows.unit_shift, entry, row_end);
            }
            entry = row_end;
        }
    }

    // From unit `unit` of a request on, those of the entries [entry, end). The first unit in a page decides.
    __aicore__ inline void add_row(int32_t request, int64_t unit, int64_t entry, int64_t end) {
        while (entry < end) {
            const int64_t page = page_of(unit, shift_);
            uint32_t pages = 1;
            if (page << shift_ == unit) {
                pages = static_cast<uint32_t>(min_of(pages_for(end - entry, shift_), kWriteTilePages));
            }
            if (used_ + pages > kWriteTilePages) {
                flush();
            }
            add_to_group(entry, pages);
            runs_[num_runs_++] = PageRun{request, static_cast<int32_t>(page), pages};
            used_ += pages;
            const int64_t next_unit = (page + pages) << shift_;
            entry += next_unit - unit;
            unit = next_unit;
        }
    }

    __aicore__ inline void add_to_group(int64_t entry, uint32_t pages) {
        if (num_groups_ > 0 && pages == 1) {
            SlotGroup& last = groups_[num_groups_ - 1];
            if (last.slots == 1) {
                last.distance = entry - last.entry;
                last.next = entry;
            }
            if (entry == last.next) {
                last.next += last.distance;
                ++last.slots;
                return;
            }
        }
        const int64_t page_units = int64_t{1} << shift_;
        groups_[num_groups_++] = SlotGroup{entry, page_units, entry + pages * page_units, pages};
    }

    // Moves what there is: the pools' parts follow each other in the tile, so that V makes their entries together.
    __aicore__ inline void flush() {
        if (num_runs_ == 0) {
            return;
        }
        const uint32_t elems = used_ * kLane;
        const uint32_t begin = tile_.claim(static_cast<uint32_t>(kWriteTilePools) * elems);
        uint32_t end = begin;
        bool wide = false;
        for (int32_t pool = 0; pools_ >> pool != 0; ++pool) {
            if ((pools_ >> pool & 1) != 0) {
                load(pool, end);
                wide = wide || tile_.is_wide(pool);
                end += elems;
            }
        }
        tile_.make_entries(begin, end - begin, shift_, wide);
        uint32_t area = begin;
        for (int32_t pool = 0; pools_ >> pool != 0; ++pool) {
            if ((pools_ >> pool & 1) != 0) {
                tile_.store(pool, area, [&](const auto& table, const auto& entries) { store(pool, table, entries); });
                area += elems;
            }
        }
        num_runs_ = 0;
        num_groups_ = 0;
        used_ = 0;
    }

    __aicore__ inline void load(int32_t pool, uint32_t area) const {
        const GlobalTensor<int32_t> slots = tile_.slots(pool);
        for (uint32_t i = 0; i < num_groups_; ++i) {
            const SlotGroup& group = groups_[i];
            load_strided_rows(tile_.entries()[area], slots[static_cast<uint64_t>(group.entry)], group.slots, 1,
                              group.distance, kLane);
            area += group.slots * kLane;
        }
    }

    // A run that goes beyond the last column of a ring goes on at its first one.
    template <typename T>
    __aicore__ inline void store(int32_t pool, const GlobalTensor<T>& table, const LocalTensor<T>& entries) const {
        const PoolAddress a = pool_address(pool, p_);
        uint32_t area = 0;
        for (uint32_t i = 0; i < num_runs_; ++i) {
            const PageRun& run = runs_[i];
            const int64_t row = run.request * a.row_elems;
            const int64_t column = page_column(run.page, a);
            uint32_t pages = run.pages;
            if (column + pages > a.columns) {
                pages = static_cast<uint32_t>(a.columns - column);
                store_rows(table[static_cast<uint64_t>(row)], entries[area + pages * kLane], run.pages - pages, 1,
                           kLane);
            }
            store_rows(table[static_cast<uint64_t>(row + column)], entries[area], pages, 1, kLane);
            area += run.pages * kLane;
        }
    }

    const WriteReqTablesParams& p_;
    WriteTile& tile_;
    int32_t shift_ = 0;   // log2 of the slots of a page of the pools that are written
    uint32_t pools_ = 0;  // bit pool: it is one of them
    PageRun runs_[kWriteTilePages];
    SlotGroup groups_[kWriteTilePages];
    uint32_t num_runs_ = 0;
    uint32_t num_groups_ = 0;
    uint32_t used_ = 0;  // pages of all runs
};

}  // namespace dsv4::kernel
