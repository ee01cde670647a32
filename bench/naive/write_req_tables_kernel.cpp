#include "kernel_operator.h"
#include "ops/write_req_tables/write_req_tables_index.h"
#include "scalar_run.h"

namespace dsv4::naive {

struct WriteInputs {
    GM_ADDR requests;
    GM_ADDR starts;
    GM_ADDR ends;
    GM_ADDR c4_state_starts;
    GM_ADDR c128_state_starts;

    __aicore__ inline WriteRow row(int64_t i, const WriteReqTablesParams& p) const {
        const int64_t start = integer(starts, p.start_is_int64, p.num_rows, i);
        const bool own = p.has_state_starts != 0;
        return WriteRow{integer(requests, p.request_is_int64, p.num_rows, i), start,
                        integer(ends, p.end_is_int64, p.num_rows, i),
                        own ? integer(c4_state_starts, p.c4_state_start_is_int64, p.num_rows, i) : start,
                        own ? integer(c128_state_starts, p.c128_state_start_is_int64, p.num_rows, i) : start};
    }
};

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void write_req_tables(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                       GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                       GM_ADDR c128_state_table, GM_ADDR requests, GM_ADDR starts,
                                                       GM_ADDR ends, GM_ADDR c4_state_starts, GM_ADDR c128_state_starts,
                                                       GM_ADDR full_loc, GM_ADDR swa_loc, GM_ADDR c4_loc,
                                                       GM_ADDR c128_loc, GM_ADDR c4_state_loc, GM_ADDR c128_state_loc,
                                                       GM_ADDR error_lanes, WriteReqTablesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    GM_ADDR tables[] = {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
    GM_ADDR slots[] = {full_loc, swa_loc, c4_loc, c128_loc, c4_state_loc, c128_state_loc};
    const dsv4::naive::WriteInputs inputs{requests, starts, ends, c4_state_starts, c128_state_starts};
    dsv4::naive::ScalarRun<int32_t> values(&pipe);
    const dsv4::BlockShare own = dsv4::block_share(p.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    for (int32_t pool = 0; pool < dsv4::kNumPools; ++pool) {
        int64_t entry = 0;
        for (int64_t i = 0; p.columns[pool] != 0 && i < own.end; ++i) {
            const dsv4::WriteRow row = inputs.row(i, p);
            const int64_t units = dsv4::write_units(row, pool, p);
            if (i >= own.begin) {
                values.begin(tables[pool], row.request * p.row_elems[pool] + dsv4::write_begin(row, pool));
                for (int64_t unit = 0; unit < units; ++unit) {
                    values.push(dsv4::table_entry(
                        dsv4::naive::element<int32_t>(slots[pool], p.loc_elems[pool], entry + unit)));
                }
                values.end();
            }
            entry += units;
        }
    }
}
