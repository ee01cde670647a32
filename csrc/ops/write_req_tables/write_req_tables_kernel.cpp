#include "device/errors.h"
#include "device/preload.h"
#include "device/row_pieces.h"
#include "device/row_values.h"
#include "kernel_operator.h"
#include "ops/write_req_tables/page_runs.h"
#include "ops/write_req_tables/write_scan.h"
#include "ops/write_req_tables/write_tile.h"

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

// Every block sums the rows' units up, by V where a chunk's rows are good. Into a table of slots it writes an equal
// share of the pool's flat slots: MTE2 fetches a tile of them, each row's piece at an address of its own, V replaces
// negative slots, MTE3 writes each piece to its table row. Into a table of pages it writes those of an equal share of
// the rows: the same for the first slot of each page, which V turns into the page.
class WriteReqTables {
  public:
    __aicore__ inline WriteReqTables(AscendC::TPipe* pipe, const PoolAddresses& tables, const WriteInputs& inputs,
                                     const PoolAddresses& slots, GM_ADDR error_lanes, const WriteReqTablesParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpWriteTables), tile_(p, tables, slots), page_runs_(p, tile_) {
        array_elems_ = static_cast<uint32_t>(row_array_elems(p.num_rows));
        pipe->InitBuffer(array_buffer_, static_cast<uint32_t>(kWriteArrays) * array_elems_ * sizeof(int32_t));
        pipe->InitBuffer(tile_buffer_, kWriteTileUnits * sizeof(int32_t));
        pipe->InitBuffer(wide_buffer_, kWriteTileUnits * sizeof(int64_t));
        tile_.init(tile_buffer_.Get<int32_t>(), wide_buffer_.Get<int64_t>());
        init_input(inputs_.requests, kWriteRequests, inputs.requests);
        init_input(inputs_.starts, kWriteStarts, inputs.starts);
        init_input(inputs_.ends, kWriteEnds, inputs.ends);
        if (p.has_state_starts != 0) {
            init_input(inputs_.c4_state_starts, kWriteC4StateStarts, inputs.c4_state_starts);
            init_input(inputs_.c128_state_starts, kWriteC128StateStarts, inputs.c128_state_starts);
        }
    }

    __aicore__ inline void run() {
        scan();
        order<HardEvent::S_MTE2>();
        // That of most pools comes last, so that a wait for memory is over when its stores have been given out.
        for (int32_t total = kWriteTotals - 1; total >= 0; --total) {
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

    __aicore__ inline void init_input(RowValues& input, int32_t number, GM_ADDR values) {
        input.init(values, p_.num_rows, is_wide_input(number, p_) ? 1 : 0,
                   tile_.entries()[static_cast<uint32_t>(number * kWriteChunkRows * 2)]);
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
        order<HardEvent::S_V>();
        inputs_.requests.load_chunk(first, rows);
        inputs_.starts.load_chunk(first, rows);
        inputs_.ends.load_chunk(first, rows);
        if (p_.has_state_starts != 0) {
            inputs_.c4_state_starts.load_chunk(first, rows);
            inputs_.c128_state_starts.load_chunk(first, rows);
        }
        // Meanwhile.
        if (first == 0) {
            vector_scan_.init(p_, wide_buffer_.Get<int32_t>());
        }
        vector_scan_.begin(rows);
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

    // Of all pools that a total is of: the block's share of the flat slots where tables hold slots, and of the rows
    // where they hold pages.
    __aicore__ inline void write_total(int32_t total) {
        const int32_t pool = pool_of_total(total);
        const FlatRows rows{array(kFirstTotal + static_cast<uint32_t>(total)), array(kRequest),
                            array(pool == kC4State     ? kC4StateStart
                                  : pool == kC128State ? kC128StateStart
                                                       : kStart),
                            static_cast<int32_t>(p_.num_rows), unit_shift(pool)};
        uint32_t slots = 0;
        uint32_t pages = 0;
        for (int32_t of_total = 0; of_total < kNumPools; ++of_total) {
            if (total_of_pool(of_total, p_) == total) {
                slots |= p_.pools[of_total].kind == kSlots ? uint32_t{1} << of_total : 0;
                pages |= p_.pools[of_total].kind == kPages ? uint32_t{1} << of_total : 0;
            }
        }
        if (slots != 0) {
            cut_slots(total, rows, slots);
        }
        page_runs_.write(rows, pages);
    }

    // The block's share, cut into pieces of one row each.
    __aicore__ inline void cut_slots(int32_t total, const FlatRows& rows, uint32_t pools) {
        const int64_t units = rows.prefix.GetValue(static_cast<uint32_t>(p_.num_rows));
        const int64_t blocks = AscendC::GetBlockNum();
        pieces_.start(
            rows,
            block_share(units, write_share_units(total), write_share(total, AscendC::GetBlockIdx(), blocks), blocks),
            kWriteTileUnits);
        while (pieces_.next_tile()) {
            for (int32_t pool = 0; pools >> pool != 0; ++pool) {
                if ((pools >> pool & 1) != 0) {
                    write_slots(pool);
                }
            }
        }
    }

    __aicore__ inline void write_slots(int32_t pool) {
        const GlobalTensor<int32_t> slots = tile_.slots(pool);
        const uint32_t begin = tile_.claim(pieces_.used());
        for (uint32_t i = 0; i < pieces_.count();) {
            const Piece& piece = pieces_[i];
            const uint32_t rows = pieces_.equal_pieces(i);
            load_rows(tile_.entries()[begin + piece.area], slots[static_cast<uint64_t>(piece.entry)], rows, piece.units,
                      0, round_up<uint32_t>(piece.units, static_cast<uint32_t>(kLaneElems)));
            i += rows;
        }
        tile_.make_entries(begin, pieces_.used(), 0, tile_.is_wide(pool));
        tile_.store(pool, begin, [&](const auto& table, const auto& entries) {
            for (uint32_t i = 0; i < pieces_.count(); ++i) {
                const int64_t entry = slot_entry_elems(pieces_[i].request, pieces_[i].unit, pool_address(pool, p_));
                store(table[static_cast<uint64_t>(entry)], entries[pieces_[i].area], pieces_[i].units);
            }
        });
    }

    const WriteReqTablesParams& p_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> array_buffer_, tile_buffer_, wide_buffer_;
    WriteTile tile_;
    PageRuns page_runs_;
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
    dsv4::kernel::preload_launch(18 * sizeof(GM_ADDR) + sizeof(WriteReqTablesParams), 5);
    AscendC::TPipe pipe;
    const dsv4::kernel::PoolAddresses tables{
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const dsv4::kernel::PoolAddresses slots{{full_loc, swa_loc, c4_loc, c128_loc, c4_state_loc, c128_state_loc}};
    const dsv4::kernel::WriteInputs inputs{requests, starts, ends, c4_state_starts, c128_state_starts};
    dsv4::kernel::WriteReqTables op(&pipe, tables, inputs, slots, error_lanes, p);
    op.run();
}
