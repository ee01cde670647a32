#include "kernel_operator.h"
#include "ops/reserve_extend/reserve_extend_index.h"
#include "segment_loops.h"

namespace dsv4::naive {

// Page of a unit, looked up for this unit alone.
__aicore__ inline int32_t page_of_unit(const ReserveSegment& s, int64_t unit, GM_ADDR table, GM_ADDR free_pages,
                                       const ReserveExtendParams& p) {
    if (s.source == kTakePages) {
        return element<int32_t>(free_pages, ring_entries(p.pools), free_page_elems(s, unit, p.pools));
    }
    return element<int32_t>(table, table_elems(s.pool, p.pools), unit_entry_elems(s, unit, p.pools));
}

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void reserve_extend(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                     GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                     GM_ADDR c128_state_table, GM_ADDR free_pages, GM_ADDR segments,
                                                     GM_ADDR full_slots, GM_ADDR swa_slots, GM_ADDR c4_slots,
                                                     GM_ADDR c128_slots, GM_ADDR c4_state_slots,
                                                     GM_ADDR c128_state_slots, GM_ADDR error_lanes,
                                                     ReserveExtendParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    GM_ADDR tables[] = {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
    GM_ADDR slots[] = {full_slots, swa_slots, c4_slots, c128_slots, c4_state_slots, c128_state_slots};
    dsv4::naive::ScalarRun<int32_t> to_output(&pipe);
    dsv4::naive::ScalarRun<int32_t> to_table(&pipe);
    const dsv4::BlockShare share =
        dsv4::block_share(p.num_segments, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    for (int64_t index = share.begin; index < share.end; ++index) {
        const ReserveSegment s = dsv4::naive::read_segment<ReserveSegment>(segments, p.num_segments, index);
        to_output.begin(slots[s.pool], dsv4::slot_elems(s, s.begin));
        const int32_t shift = p.pools.page_shift[s.pool];
        for (int64_t unit = s.begin; unit < s.end; ++unit) {
            if (s.source == dsv4::kNoSlots) {
                to_output.push(0);
                continue;
            }
            const int32_t page = dsv4::naive::page_of_unit(s, unit, tables[s.pool], free_pages, p);
            to_output.push(static_cast<int32_t>(dsv4::slot_of(page, unit, shift)));
            if (s.source == dsv4::kTakePages && dsv4::offset_in_page(unit, shift) == 0) {
                to_table.begin(tables[s.pool], dsv4::unit_entry_elems(s, unit, p.pools));
                to_table.push(page);
                to_table.end();
            }
        }
        to_output.end();
    }
}
