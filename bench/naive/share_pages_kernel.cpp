#include "kernel_operator.h"
#include "ops/share_pages/share_pages_index.h"
#include "segment_loops.h"

extern "C" __global__ __aicore__ void share_pages(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                  GM_ADDR c128_table, GM_ADDR c4_state_table, GM_ADDR c128_state_table,
                                                  GM_ADDR free_pages, GM_ADDR segments, GM_ADDR source_pages,
                                                  GM_ADDR destination_pages, GM_ADDR error_lanes, SharePagesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    using dsv4::naive::element;
    AscendC::TPipe pipe;
    GM_ADDR tables[] = {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
    dsv4::naive::ScalarRun<int32_t> values(&pipe);
    const auto write_one = [&](GM_ADDR list, int64_t entry, int64_t value) {
        values.begin(list, entry);
        values.push(static_cast<int32_t>(value));
        values.end();
    };
    const dsv4::BlockShare share =
        dsv4::block_share(p.num_segments, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    for (int64_t index = share.begin; index < share.end; ++index) {
        const ShareSegment s = dsv4::naive::read_segment<ShareSegment>(segments, p.num_segments, index);
        for (int64_t page = s.begin; page < s.end; ++page) {
            int32_t id = element<int32_t>(tables[s.pool], dsv4::table_elems(s.pool, p.pools),
                                          dsv4::source_elems(s, page, p.pools));
            if (dsv4::is_copy(s)) {
                write_one(source_pages, s.copy, id);
                id = element<int32_t>(free_pages, dsv4::ring_entries(p.pools), dsv4::copy_page_elems(s, p.pools));
                write_one(destination_pages, s.copy, id);
            }
            write_one(tables[s.pool], dsv4::target_elems(s, page, p.pools), id);
        }
    }
}
