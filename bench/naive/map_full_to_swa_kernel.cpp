#include "kernel_operator.h"
#include "ops/map_full_to_swa/map_full_to_swa_index.h"
#include "segment_loops.h"

extern "C" __global__ __aicore__ void map_full_to_swa(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR segments,
                                                      GM_ADDR full_to_swa, GM_ADDR error_lanes, MapFullToSwaParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    using dsv4::naive::element;
    AscendC::TPipe pipe;
    dsv4::naive::ScalarRun<int64_t> values(&pipe);
    const dsv4::BlockShare share =
        dsv4::block_share(p.num_segments, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    for (int64_t index = share.begin; index < share.end; ++index) {
        const MapSegment s = dsv4::naive::read_segment<MapSegment>(segments, p.num_segments, index);
        for (int64_t unit = s.begin; unit < s.end; ++unit) {
            const int32_t full_page = element<int32_t>(full_table, p.max_requests * p.full_row_elems,
                                                       dsv4::full_entry_elems(s, unit, p));
            int32_t swa_page = 0;
            if (s.source == dsv4::kMapTable) {
                swa_page = element<int32_t>(swa_table, p.max_requests * p.swa_row_elems,
                                            dsv4::swa_entry_elems(s, unit, p));
            }
            values.begin(full_to_swa, dsv4::slot_of(full_page, unit, p.page_shift));
            values.push(swa_page == 0 ? 0 : dsv4::slot_of(swa_page, unit, p.page_shift));
            values.end();
        }
    }
}
