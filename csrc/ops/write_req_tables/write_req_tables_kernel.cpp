#include "device/errors.h"
#include "device/pools.h"
#include "device/row_pieces.h"
#include "device/row_values.h"
#include "kernel_operator.h"
#include "ops/write_req_tables/write_req_tables_index.h"
#include "ops/write_req_tables/write_scan.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

struct WriteInputs {
    GM_ADDR requests;
    GM_ADDR starts;
    GM_ADDR ends;
    GM_ADDR c4_state_starts;
    GM_ADDR c128_state_starts;
};

// Every block sums the rows' units up, by V where a chunk's rows are good, then takes an equal share of each pool's
// flat slots. Into a table of slots: MTE2 fetches a tile of them, each row's piece at an address of its own, V replaces
// negative slots, MTE3 writes each piece to its table row. Into a table of pages: the same for the first slot of each
// page in the share, which V turns into the page.
class WriteReqTables {
  public:
    __aicore__ inline WriteReqTables(AscendC::TPipe* pipe, const PoolAddresses& tables, const WriteInputs& inputs,
                                     const PoolAddresses& slots, GM_ADDR error_lanes, const WriteReqTablesParams& p)
        : p_(p), tables_(tables), slots_(slots), errors_(pipe, error_lanes, kErrorOpWriteTables) {
        array_elems_ = static_cast<uint32_t>(row_array_elems(p.num_rows));
        pipe->InitBuffer(array_buffer_, static_cast<uint32_t>(kWriteArrays) * array_elems_ * sizeof(int32_t));
        pipe->InitBuffer(tile_buffer_, kWriteTileUnits * sizeof(int32_t));
        pipe->InitBuffer(wide_buffer_, kWriteTileUnits * sizeof(int64_t));
        tile_ = tile_buffer_.Get<int32_t>();
        wide_ = wide_buffer_.Get<int64_t>();
        init_input(inputs_.requests, kWriteRequests, inputs.requests);
        init_input(inputs_.starts, kWriteStarts, inputs.starts);
        init_input(inputs_.ends, kWriteEnds, inputs.ends);
        init_input(inputs_.c4_state_starts, kWriteC4StateStarts, inputs.c4_state_starts);
        init_input(inputs_.c128_state_starts, kWriteC128StateStarts, inputs.c128_state_starts);
        vector_scan_.init(p, wide_buffer_.Get<int32_t>());
    }

    __aicore__ inline void run() {
        scan();
        order<HardEvent::S_MTE2>();
        for (int32_t total = 0; total < kWriteTotals; ++total) {
            if (total_is_written(total, p_)) {
                write_total(total);
            }
        }
        errors_.flush();
    }

  private:
    // The arrays that are kept of all rows.
    static constexpr uint32_t kRequest = 0;
    static constexpr uint32_t kStart = 1;
    static constexpr uint32_t kC4StateStart = 2;
    static constexpr uint32_t kC128StateStart = 3;
    static constexpr uint32_t kFirstTotal = 4;

    static constexpr uint32_t kLane = static_cast<uint32_t>(kLaneElems);

    __aicore__ inline void init_input(RowValues& input, int32_t number, GM_ADDR values) {
        input.init(values, p_.num_rows, is_wide_input(number, p_) ? 1 : 0,
                   tile_[static_cast<uint32_t>(number * kWriteChunkRows * 2)]);
    }

    __aicore__ inline LocalTensor<int32_t> array(uint32_t index) {
        return array_buffer_.Get<int32_t>()[index * array_elems_];
    }

    __aicore__ inline void scan() {
        const BlockShare own = block_share(p_.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        int64_t totals[kWriteTotals] = {};
        vector_scan_.prepare();
        for (int64_t first = 0; first < p_.num_rows; first += kWriteChunkRows) {
            const uint32_t rows = static_cast<uint32_t>(min_of<int64_t>(kWriteChunkRows, p_.num_rows - first));
            load_chunk(first, rows);
            if (vector_scan_.chunk(rows, inputs_, scanned(static_cast<uint32_t>(first)), totals)) {
                continue;
            }
            for (uint32_t i = 0; i < rows; ++i) {
                const int64_t index = first + i;
                keep(static_cast<uint32_t>(index), admit(read(i), index, index >= own.begin && index < own.end, totals),
                     totals);
            }
        }
        for (uint32_t total = 0; total < kWriteTotals; ++total) {
            array(kFirstTotal + total)
                .SetValue(static_cast<uint32_t>(p_.num_rows), static_cast<int32_t>(totals[total]));
        }
    }

    __aicore__ inline ScannedWriteRows scanned(uint32_t first) {
        ScannedWriteRows rows{array(kRequest)[first],
                              array(kStart)[first],
                              array(kC4StateStart)[first],
                              array(kC128StateStart)[first],
                              {}};
        for (uint32_t total = 0; total < kWriteTotals; ++total) {
            rows.totals[total] = array(kFirstTotal + total)[first];
        }
        return rows;
    }

    __aicore__ inline void load_chunk(int64_t first, uint32_t rows) {
        order<HardEvent::S_MTE2>();
        inputs_.requests.load_chunk(first, rows);
        inputs_.starts.load_chunk(first, rows);
        inputs_.ends.load_chunk(first, rows);
        if (p_.has_state_starts != 0) {
            inputs_.c4_state_starts.load_chunk(first, rows);
            inputs_.c128_state_starts.load_chunk(first, rows);
        }
        // V too comes after this.
        order<HardEvent::MTE2_S>();
    }

    __aicore__ inline WriteRow read(uint32_t i) const {
        const int64_t start = inputs_.starts.get(i);
        return WriteRow{inputs_.requests.get(i), start, inputs_.ends.get(i),
                        p_.has_state_starts != 0 ? inputs_.c4_state_starts.get(i) : start,
                        p_.has_state_starts != 0 ? inputs_.c128_state_starts.get(i) : start};
    }

    // A bad row becomes padding; one block tells.
    __aicore__ inline WriteRow admit(const WriteRow& row, int64_t index, bool own, const int64_t* totals) {
        int32_t fault = write_row_fault(row, p_);
        for (int32_t total = 0; fault == kWriteValid && total < kWriteTotals; ++total) {
            if (total_is_written(total, p_) &&
                units_of_total(row, total) > limit_of_total(total, p_) - totals[total]) {
                fault = kWriteBeyondSlots;
            }
        }
        if (fault == kWriteValid) {
            return row;
        }
        if (own) {
            errors_.report(fault, index, fault == kWriteUnknownRequest ? row.request : row.end);
        }
        return WriteRow{0, 0, 0, 0, 0};
    }

    __aicore__ inline void keep(uint32_t index, const WriteRow& row, int64_t* totals) {
        array(kRequest).SetValue(index, static_cast<int32_t>(row.request));
        array(kStart).SetValue(index, static_cast<int32_t>(row.start));
        array(kC4StateStart).SetValue(index, static_cast<int32_t>(row.c4_state_start));
        array(kC128StateStart).SetValue(index, static_cast<int32_t>(row.c128_state_start));
        for (int32_t total = 0; total < kWriteTotals; ++total) {
            array(kFirstTotal + total).SetValue(index, static_cast<int32_t>(totals[total]));
            totals[total] += total_is_written(total, p_) ? units_of_total(row, total) : 0;
        }
    }

    // The block's share of the flat slots of all pools that a total is of, cut into pieces of one row each.
    __aicore__ inline void write_total(int32_t total) {
        const int32_t pool = pool_of_total(total);
        const FlatRows rows{array(kFirstTotal + static_cast<uint32_t>(total)), array(kRequest),
                            array(pool == kC4State     ? kC4StateStart
                                  : pool == kC128State ? kC128StateStart
                                                       : kStart),
                            static_cast<int32_t>(p_.num_rows), unit_shift(pool)};
        const int64_t units = rows.prefix.GetValue(static_cast<uint32_t>(p_.num_rows));
        const int64_t blocks = AscendC::GetBlockNum();
        pieces_.start(
            rows,
            block_share(units, write_share_units(total), write_share(total, AscendC::GetBlockIdx(), blocks), blocks),
            write_tile_units(total, p_), kLaneElems);
        while (pieces_.next_tile()) {
            uint32_t paged = 0;
            for (int32_t of_total = 0; of_total < kNumPools; ++of_total) {
                if (total_of_pool(of_total, p_) != total) {
                    continue;
                }
                if (p_.pools[of_total].kind == kSlots) {
                    write_slots(of_total);
                } else if (p_.pools[of_total].kind == kPages) {
                    paged |= uint32_t{1} << of_total;
                }
            }
            write_pages(paged);
        }
    }

    // A part of the tile that nothing uses any more, in entries.
    __aicore__ inline uint32_t claim(uint32_t entries) {
        if (tile_used_ + entries > static_cast<uint32_t>(kWriteTileUnits)) {
            // And V, which waits for MTE2, after MTE3.
            order<HardEvent::MTE3_MTE2>();
            tile_used_ = 0;
        }
        const uint32_t begin = tile_used_;
        tile_used_ += entries;
        return begin;
    }

    __aicore__ inline void write_slots(int32_t pool) {
        const GlobalTensor<int32_t> slots = slots_.tensor(pool, p_.pools[pool].loc_elems);
        const uint32_t begin = claim(pieces_.used());
        for (uint32_t i = 0; i < pieces_.count();) {
            const Piece& piece = pieces_[i];
            const uint32_t rows = pieces_.equal_pieces(i);
            load_rows(tile_[begin + piece.area], slots[static_cast<uint64_t>(piece.entry)], rows, piece.units, 0,
                      round_up<uint32_t>(piece.units, kLane));
            i += rows;
        }
        make_entries(begin, pieces_.used(), 0, is_wide(pool));
        if (is_wide(pool)) {
            store_slots(pool, wide_[begin]);
        } else {
            store_slots(pool, tile_[begin]);
        }
    }

    template <typename T>
    __aicore__ inline void store_slots(int32_t pool, const LocalTensor<T>& entries) {
        const GlobalTensor<T> to = table<T>(pool);
        for (uint32_t i = 0; i < pieces_.count(); ++i) {
            const int64_t entry = slot_entry_elems(pieces_[i].request, pieces_[i].unit, pool_address(pool, p_));
            store(to[static_cast<uint64_t>(entry)], entries[pieces_[i].area], pieces_[i].units);
        }
    }

    // Pages of a request that follow each other, and whose first slots lie a page apart in the flat list.
    struct PageRun {
        int64_t request;
        int64_t page;
        uint32_t pages;
        uint32_t area;  // of the first page, in pages; each takes a 32-byte block of the tile
    };

    // Slots at equal distances in the flat list, which one copy fetches.
    struct SlotGroup {
        int64_t entry;
        int64_t distance;
        int64_t next;  // the entry of one more
        uint32_t slots;
        uint32_t area;  // as in a PageRun
    };

    // Pools with equally long pages have the first slots of their pages at the same entries of their flat lists.
    __aicore__ inline void write_pages(uint32_t pools) {
        for (int32_t pool = 0; pools >> pool != 0; ++pool) {
            if ((pools >> pool & 1) == 0) {
                continue;
            }
            const int32_t shift = p_.pools[pool].page_shift;
            uint32_t alike = 0;
            for (int32_t other = pool; pools >> other != 0; ++other) {
                alike |= p_.pools[other].page_shift == shift ? pools & uint32_t{1} << other : 0;
            }
            start_runs();
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                collect_pages(alike, shift, pieces_[i]);
            }
            flush_runs(alike, shift);
            pools &= ~alike;
        }
    }

    __aicore__ inline void start_runs() {
        num_runs_ = 0;
        num_groups_ = 0;
        used_pages_ = 0;
    }

    // The row's first unit in a page decides, so that what lies before the first whole page of a piece is its own only
    // at the start of the row.
    __aicore__ inline void collect_pages(uint32_t pools, int32_t shift, const Piece& piece) {
        const int64_t end = piece.unit + piece.units;
        int64_t unit = piece.starts_row ? piece.unit : page_start_from(piece.unit, shift);
        while (unit < end) {
            const int64_t page = page_of(unit, shift);
            const bool starts_page = page << shift == unit;
            const int64_t pages = starts_page ? min_of(pages_for(end - unit, shift), kWriteTilePages) : 1;
            add_run(pools, shift, piece, unit, page, static_cast<uint32_t>(pages));
            unit = (page + pages) << shift;
        }
    }

    __aicore__ inline void add_run(uint32_t pools, int32_t shift, const Piece& piece, int64_t unit, int64_t page,
                                   uint32_t pages) {
        if (num_runs_ == kWriteTileRuns || used_pages_ + pages > kWriteTilePages) {
            flush_runs(pools, shift);
        }
        add_to_group(piece.entry + (unit - piece.unit), pages, int64_t{1} << shift);
        runs_[num_runs_++] = PageRun{piece.request, page, pages, used_pages_};
        used_pages_ += pages;
    }

    __aicore__ inline void add_to_group(int64_t entry, uint32_t pages, int64_t page_units) {
        if (num_groups_ > 0 && pages == 1) {
            SlotGroup& last = groups_[num_groups_ - 1];
            if (last.slots == 1) {
                last.distance = entry - last.entry;
            }
            if (last.slots == 1 || entry == last.next) {
                last.next = entry + last.distance;
                ++last.slots;
                return;
            }
        }
        groups_[num_groups_++] = SlotGroup{entry, page_units, entry + pages * page_units, pages, used_pages_};
    }

    __aicore__ inline void flush_runs(uint32_t pools, int32_t shift) {
        for (int32_t pool = 0; num_runs_ != 0 && pools >> pool != 0; ++pool) {
            if ((pools >> pool & 1) != 0) {
                write_runs(pool, shift);
            }
        }
        start_runs();
    }

    __aicore__ inline void write_runs(int32_t pool, int32_t shift) {
        const GlobalTensor<int32_t> slots = slots_.tensor(pool, p_.pools[pool].loc_elems);
        const uint32_t begin = claim(used_pages_ * kLane);
        for (uint32_t i = 0; i < num_groups_; ++i) {
            const SlotGroup& group = groups_[i];
            load_strided_rows(tile_[begin + group.area * kLane], slots[static_cast<uint64_t>(group.entry)], group.slots,
                              1, group.distance, kLane);
        }
        make_entries(begin, used_pages_ * kLane, shift, is_wide(pool));
        if (is_wide(pool)) {
            store_runs(pool, wide_[begin]);
        } else {
            store_runs(pool, tile_[begin]);
        }
    }

    // A run that goes beyond the last column of a ring goes on at its first one.
    template <typename T>
    __aicore__ inline void store_runs(int32_t pool, const LocalTensor<T>& entries) {
        const GlobalTensor<T> to = table<T>(pool);
        const PoolAddress a = pool_address(pool, p_);
        for (uint32_t i = 0; i < num_runs_; ++i) {
            const PageRun& run = runs_[i];
            const int64_t row = run.request * a.row_elems;
            const int64_t column = page_column(run.page, a);
            uint32_t pages = run.pages;
            if (column + pages > a.columns) {
                pages = static_cast<uint32_t>(a.columns - column);
                store_rows(to[static_cast<uint64_t>(row)], entries[(run.area + pages) * kLane], run.pages - pages, 1,
                           kLane);
            }
            store_rows(to[static_cast<uint64_t>(row + column)], entries[run.area * kLane], pages, 1, kLane);
        }
    }

    // Slots in a part of the tile -> entries there, and in wide_ where the table is int64.
    __aicore__ inline void make_entries(uint32_t begin, uint32_t elems, int32_t shift, bool wide) {
        const LocalTensor<int32_t> entries = tile_[begin];
        order<HardEvent::MTE2_V>();
        AscendC::Maxs(entries, entries, table_entry(INT32_MIN), static_cast<int32_t>(elems));
        if (shift != 0) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::ShiftRight(entries, entries, shift, static_cast<int32_t>(elems));
        }
        if (wide) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Cast(wide_[begin], entries, AscendC::RoundMode::CAST_NONE, elems);
        }
        order<HardEvent::V_MTE3>();
    }

    __aicore__ inline bool is_wide(int32_t pool) const { return p_.pools[pool].is_int64 != 0; }

    template <typename T>
    __aicore__ inline GlobalTensor<T> table(int32_t pool) const {
        return global<T>(tables_.address[pool], static_cast<uint64_t>(p_.pools[pool].row_elems * p_.max_requests));
    }

    const WriteReqTablesParams& p_;
    const PoolAddresses& tables_;
    const PoolAddresses& slots_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> array_buffer_, tile_buffer_, wide_buffer_;
    LocalTensor<int32_t> tile_;
    LocalTensor<int64_t> wide_;
    PageRun runs_[kWriteTileRuns];
    SlotGroup groups_[kWriteTileRuns];
    uint32_t tile_used_ = 0;
    uint32_t num_runs_ = 0;
    uint32_t num_groups_ = 0;
    uint32_t used_pages_ = 0;
    WriteRowInputs inputs_;
    WriteScan vector_scan_;
    RowPieces pieces_;
    uint32_t array_elems_;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void write_req_tables(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                       GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                       GM_ADDR c128_state_table, GM_ADDR requests, GM_ADDR starts,
                                                       GM_ADDR ends, GM_ADDR c4_state_starts, GM_ADDR c128_state_starts,
                                                       GM_ADDR full_loc, GM_ADDR swa_loc, GM_ADDR c4_loc,
                                                       GM_ADDR c128_loc, GM_ADDR c4_state_loc, GM_ADDR c128_state_loc,
                                                       GM_ADDR error_lanes, WriteReqTablesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    const dsv4::kernel::PoolAddresses tables{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const dsv4::kernel::PoolAddresses slots{{full_loc, swa_loc, c4_loc, c128_loc, c4_state_loc, c128_state_loc}};
    const dsv4::kernel::WriteInputs inputs{requests, starts, ends, c4_state_starts, c128_state_starts};
    dsv4::kernel::WriteReqTables op(&pipe, tables, inputs, slots, error_lanes, p);
    op.run();
}
