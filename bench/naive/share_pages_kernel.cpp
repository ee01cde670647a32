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
        const auto source_slot = [&](int64_t unit) {
            return element<int32_t>(tables[s.pool], p.max_requests * p.row_elems[s.pool],
                                    dsv4::source_offset_elems(s, unit, p));
        };
        int32_t page = 0;
        if (dsv4::is_copy(s)) {
            page = element<int32_t>(free_pages, dsv4::ring_entries(p.num_pages), dsv4::copy_page_offset_elems(s, p));
            write_one(source_pages, s.copy, dsv4::page_of(source_slot(s.begin_unit), p.page_shift));
            write_one(destination_pages, s.copy, page);
        }
        values.begin(tables[s.pool], dsv4::target_offset_elems(s, s.begin_unit, p));
        for (int64_t unit = s.begin_unit; unit < s.end_unit; ++unit) {
            values.push(dsv4::is_copy(s) ? static_cast<int32_t>(dsv4::slot_of(page, unit, p.page_shift))
                                         : source_slot(unit));
        }
        values.end();
    }
}
