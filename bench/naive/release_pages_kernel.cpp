#include "kernel_operator.h"
#include "ops/release_pages/release_pages_index.h"
#include "segment_loops.h"

extern "C" __global__ __aicore__ void release_pages(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                    GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                    GM_ADDR c128_state_table, GM_ADDR free_pages, GM_ADDR segments,
                                                    GM_ADDR error_lanes, ReleasePagesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    GM_ADDR tables[] = {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
    dsv4::naive::ScalarRun<int32_t> values(&pipe);
    const dsv4::BlockShare share =
        dsv4::block_share(p.num_segments, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    for (int64_t index = share.begin; index < share.end; ++index) {
        const ReleaseSegment s = dsv4::naive::read_segment<ReleaseSegment>(segments, p.num_segments, index);
        const int64_t table_elems = p.max_requests * p.row_elems[s.pool];
        const int64_t step = int64_t{1} << p.page_shift;
        for (int64_t unit = s.begin_unit; s.ring_position != dsv4::kKeepPage && unit < s.end_unit; unit += step) {
            const int32_t slot = dsv4::naive::element<int32_t>(tables[s.pool], table_elems,
                                                               dsv4::table_offset_elems(s, unit, p));
            values.begin(free_pages, dsv4::freed_page_offset_elems(s, unit, p));
            values.push(static_cast<int32_t>(dsv4::page_of(slot, p.page_shift)));
            values.end();
        }
        values.begin(tables[s.pool], dsv4::table_offset_elems(s, s.begin_unit, p));
        for (int64_t unit = s.begin_unit; unit < s.end_unit; ++unit) {
            values.push(0);
        }
        values.end();
    }
}
