#include "device/errors.h"
#include "device/pools.h"
#include "device/row_pieces.h"
#include "device/row_values.h"
#include "kernel_operator.h"
#include "ops/write_req_tables/write_req_tables_index.h"

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

// Every block sums the rows' units up, then takes an equal share of each pool's flat slots. Into a table of slots: MTE2
// fetches a tile of them, each row's piece at an address of its own, V replaces negative slots, MTE3 writes each piece
// to its table row. Into a table of pages: the same for the first slot of each page in the share, which V turns into
// the page.
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
        init_input(kRequest, inputs.requests, p.request_is_int64);
        init_input(kStart, inputs.starts, p.start_is_int64);
        init_input(kEnd, inputs.ends, p.end_is_int64);
        init_input(kC4StateStart, inputs.c4_state_starts, p.c4_state_start_is_int64);
        init_input(kC128StateStart, inputs.c128_state_starts, p.c128_state_start_is_int64);
    }

    __aicore__ inline void run() {
        scan();
        order<HardEvent::S_MTE2>();
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            if (p_.pools[pool].kind == kSlots) {
                write_slots(pool);
            } else if (p_.pools[pool].kind == kPages) {
                write_pages(pool);
            }
        }
        errors_.flush();
    }

  private:
    // Inputs, and the first of the arrays that are kept of all rows.
    static constexpr uint32_t kRequest = 0;
    static constexpr uint32_t kStart = 1;
    static constexpr uint32_t kC4StateStart = 2;
    static constexpr uint32_t kC128StateStart = 3;
    static constexpr uint32_t kEnd = 4;  // not kept
    static constexpr uint32_t kFirstTotal = 4;

    static constexpr uint32_t kLane = static_cast<uint32_t>(kLaneElems);

    __aicore__ inline void init_input(uint32_t input, GM_ADDR values, int32_t is_int64) {
        inputs_[input].init(values, p_.num_rows, is_int64, tile_[input * static_cast<uint32_t>(kWriteChunkRows) * 2]);
    }

    __aicore__ inline LocalTensor<int32_t> array(uint32_t index) {
        return array_buffer_.Get<int32_t>()[index * array_elems_];
    }

    __aicore__ inline void scan() {
        const BlockShare own = block_share(p_.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        int64_t totals[kWriteTotals] = {};
        for (int64_t first = 0; first < p_.num_rows; first += kWriteChunkRows) {
            const uint32_t rows = static_cast<uint32_t>(min_of<int64_t>(kWriteChunkRows, p_.num_rows - first));
            load_chunk(first, rows);
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

    __aicore__ inline void load_chunk(int64_t first, uint32_t rows) {
        order<HardEvent::S_MTE2>();
        inputs_[kRequest].load_chunk(first, rows);
        inputs_[kStart].load_chunk(first, rows);
        inputs_[kEnd].load_chunk(first, rows);
        if (p_.has_state_starts != 0) {
            inputs_[kC4StateStart].load_chunk(first, rows);
            inputs_[kC128StateStart].load_chunk(first, rows);
        }
        order<HardEvent::MTE2_S>();
    }

    __aicore__ inline WriteRow read(uint32_t i) const {
        const int64_t start = inputs_[kStart].get(i);
        return WriteRow{inputs_[kRequest].get(i), start, inputs_[kEnd].get(i),
                        p_.has_state_starts != 0 ? inputs_[kC4StateStart].get(i) : start,
                        p_.has_state_starts != 0 ? inputs_[kC128StateStart].get(i) : start};
    }

    // A bad row becomes padding; one block tells.
    __aicore__ inline WriteRow admit(const WriteRow& row, int64_t index, bool own, const int64_t* totals) {
        int32_t fault = write_row_fault(row, p_);
        for (int32_t total = 0; fault == kWriteValid && total < kWriteTotals; ++total) {
            if (units_of_total(row, total, p_) > limit_of_total(total, p_) - totals[total]) {
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
            totals[total] += units_of_total(row, total, p_);
        }
    }

    // Starts the block's share of a pool's flat slots, cut into pieces of one row each.
    __aicore__ inline void start_pieces(int32_t pool, int64_t tile_units) {
        const LocalTensor<int32_t> prefix = array(kFirstTotal + total_of_pool(pool));
        const int64_t units = prefix.GetValue(static_cast<uint32_t>(p_.num_rows));
        pieces_.start(prefix, p_.num_rows,
                      block_share(units, kLaneElems, AscendC::GetBlockIdx(), AscendC::GetBlockNum()), tile_units,
                      kLaneElems);
    }

    __aicore__ inline void write_slots(int32_t pool) {
        const GlobalTensor<int32_t> slots = slots_.tensor(pool, p_.loc_elems[pool]);
        const PoolAddress& a = p_.pools[pool];
        start_pieces(pool, kWriteTileUnits);
        while (pieces_.next_tile()) {
            order<HardEvent::MTE3_MTE2>();
            for (uint32_t i = 0; i < pieces_.count();) {
                const Piece& piece = pieces_[i];
                const uint32_t rows = pieces_.equal_pieces(i);
                load_rows(tile_[piece.area], slots[piece.entry], rows, piece.units, 0,
                          round_up<uint32_t>(piece.units, kLaneElems));
                i += rows;
            }
            make_entries(a, pieces_.used(), 0);
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                const Piece& piece = pieces_[i];
                const int64_t unit = first_unit(pool, piece.row) + piece.offset;
                store_entries(pool, slot_entry_elems(request(piece.row), unit, a), piece.area, 1, piece.units);
            }
        }
    }

    // Pages whose first slots in the flat list lie at equal distances: their entries lie next to each other in the
    // table.
    struct PageRun {
        int64_t entry;  // of the flat slots: the first page's
        int64_t table_elems;
        uint32_t pages;
        uint32_t area;  // of the first page, in pages; each takes a lane block of the tile
    };

    __aicore__ inline void write_pages(int32_t pool) {
        const int64_t tile_units = min_of<int64_t>(kWriteTilePages << p_.pools[pool].page_shift, INT32_MAX);
        start_pieces(pool, tile_units);
        num_runs_ = 0;
        used_pages_ = 0;
        while (pieces_.next_tile()) {
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                collect_pages(pool, pieces_[i]);
            }
        }
        flush_runs(pool);
    }

    // The row's first unit in a page decides, so that what lies before the first whole page of a piece is its own only
    // at the start of the row.
    __aicore__ inline void collect_pages(int32_t pool, const Piece& piece) {
        const PoolAddress& a = p_.pools[pool];
        const int64_t begin = first_unit(pool, piece.row) + piece.offset;
        const int64_t end = begin + piece.units;
        const int64_t aligned = page_start_from(begin, a.page_shift);
        if (piece.offset == 0 && begin < aligned) {
            add_run(pool, piece, begin, begin, 1);
        }
        for (int64_t unit = aligned; unit < end;) {
            const int64_t page = page_of(unit, a.page_shift);
            const int64_t columns = min_of<int64_t>(kWriteTilePages, a.columns - page_column(page, a));
            const int64_t pages = min_of(pages_for(end - unit, a.page_shift), columns);
            add_run(pool, piece, begin, unit, static_cast<uint32_t>(pages));
            unit += pages << a.page_shift;
        }
    }

    __aicore__ inline void add_run(int32_t pool, const Piece& piece, int64_t begin, int64_t unit, uint32_t pages) {
        if (num_runs_ == kWriteTileRuns || used_pages_ + pages > kWriteTilePages) {
            flush_runs(pool);
        }
        const PoolAddress& a = p_.pools[pool];
        runs_[num_runs_++] = PageRun{piece.entry + (unit - begin),
                                     page_entry_elems(request(piece.row), page_of(unit, a.page_shift), a), pages,
                                     used_pages_};
        used_pages_ += pages;
    }

    __aicore__ inline void flush_runs(int32_t pool) {
        if (num_runs_ == 0) {
            return;
        }
        const GlobalTensor<int32_t> slots = slots_.tensor(pool, p_.loc_elems[pool]);
        const PoolAddress& a = p_.pools[pool];
        order<HardEvent::MTE3_MTE2>();
        for (uint32_t i = 0; i < num_runs_; ++i) {
            const PageRun& run = runs_[i];
            load_strided_rows(tile_[run.area * kLane], slots[static_cast<uint64_t>(run.entry)], run.pages, 1,
                              int64_t{1} << a.page_shift, kLane);
        }
        make_entries(a, used_pages_ * kLane, a.page_shift);
        for (uint32_t i = 0; i < num_runs_; ++i) {
            store_entries(pool, runs_[i].table_elems, runs_[i].area * kLane, runs_[i].pages, 1);
        }
        num_runs_ = 0;
        used_pages_ = 0;
    }

    // Slots in tile_ -> entries there, and in wide_ where the table is int64.
    __aicore__ inline void make_entries(const PoolAddress& a, uint32_t elems, int32_t shift) {
        order<HardEvent::MTE2_V>();
        order<HardEvent::MTE3_V>();
        AscendC::Maxs(tile_, tile_, table_entry(INT32_MIN), static_cast<int32_t>(elems));
        if (shift != 0) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::ShiftRight(tile_, tile_, shift, static_cast<int32_t>(elems));
        }
        if (a.is_int64 != 0) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Cast(wide_, tile_, AscendC::RoundMode::CAST_NONE, elems);
        }
        order<HardEvent::V_MTE3>();
    }

    // rows rows of row_elems entries from a lane block of the tile each, to the table without gaps.
    __aicore__ inline void store_entries(int32_t pool, int64_t at_elems, uint32_t area, uint32_t rows,
                                         uint32_t row_elems) {
        const PoolAddress& a = p_.pools[pool];
        GM_ADDR table = tables_.address[pool];
        const uint64_t elems = static_cast<uint64_t>(p_.max_requests * a.row_elems);
        const uint32_t pitch = round_up<uint32_t>(row_elems, kLane);
        if (a.is_int64 != 0) {
            store_rows(global<int64_t>(table, elems)[static_cast<uint64_t>(at_elems)], wide_[area], rows, row_elems, pitch);
        } else {
            store_rows(global<int32_t>(table, elems)[static_cast<uint64_t>(at_elems)], tile_[area], rows, row_elems, pitch);
        }
    }

    __aicore__ inline int64_t request(int32_t row) { return array(kRequest).GetValue(static_cast<uint32_t>(row)); }

    // First unit of the pool that the row writes.
    __aicore__ inline int64_t first_unit(int32_t pool, int32_t row) {
        const uint32_t start = pool == kC4State ? kC4StateStart : pool == kC128State ? kC128StateStart : kStart;
        return units_in(array(start).GetValue(static_cast<uint32_t>(row)), pool);
    }

    const WriteReqTablesParams& p_;
    const PoolAddresses& tables_;
    const PoolAddresses& slots_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> array_buffer_, tile_buffer_, wide_buffer_;
    LocalTensor<int32_t> tile_;
    LocalTensor<int64_t> wide_;
    PageRun runs_[kWriteTileRuns];
    uint32_t num_runs_ = 0;
    uint32_t used_pages_ = 0;
    RowValues inputs_[kWriteInputs];
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
