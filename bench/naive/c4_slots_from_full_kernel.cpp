#include "kernel_operator.h"
#include "ops/c4_slots_from_full/c4_slots_from_full_index.h"
#include "scalar_run.h"

extern "C" __global__ __aicore__ void c4_slots_from_full(GM_ADDR full_loc, GM_ADDR c4_loc, GM_ADDR error_lanes,
                                                         C4SlotsFromFullParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    dsv4::naive::ScalarRun<int32_t> values(&pipe);
    const int64_t block = AscendC::GetBlockIdx();
    const int64_t blocks = AscendC::GetBlockNum();
    const dsv4::BlockShare share = dsv4::block_share(p.num_slots, 1, block, blocks);
    int64_t group = 0;
    for (int64_t i = 0; i < share.begin; ++i) {
        group += dsv4::completes_group(dsv4::naive::element<int32_t>(full_loc, p.num_slots, i)) ? 1 : 0;
    }
    values.begin(c4_loc, group);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const int32_t slot = dsv4::naive::element<int32_t>(full_loc, p.num_slots, i);
        if (dsv4::completes_group(slot)) {
            values.push(static_cast<int32_t>(dsv4::c4_slot(slot)));
            ++group;
        }
    }
    for (; block == blocks - 1 && group < p.capacity_groups; ++group) {
        values.push(0);
    }
    values.end();
}
