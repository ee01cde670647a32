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
        for (int64_t page = s.begin; page < s.end; ++page) {
            const int64_t entry = dsv4::page_entry_elems(s.pool, s.request, page, p.pools);
            if (s.ring_position != dsv4::kKeepPage) {
                values.begin(free_pages, dsv4::freed_page_elems(s, page, p.pools));
                values.push(
                    dsv4::naive::element<int32_t>(tables[s.pool], dsv4::table_elems(s.pool, p.pools), entry));
                values.end();
            }
            values.begin(tables[s.pool], entry);
            values.push(0);
            values.end();
        }
    }
}
