#include "kernel_operator.h"
#include "ops/rope_gather/rope_gather_index.h"
#include "scalar_run.h"

// float32 tables to float32 rows, moved as bits.
extern "C" __global__ __aicore__ void rope_gather(GM_ADDR cos, GM_ADDR sin, GM_ADDR positions, GM_ADDR cos_out,
                                                  GM_ADDR sin_out, GM_ADDR error_lanes, RopeGatherParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    dsv4::naive::ScalarRun<uint32_t> values(&pipe);
    const dsv4::BlockShare share =
        dsv4::block_share(p.num_positions, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    GM_ADDR tables[] = {cos, sin};
    GM_ADDR outputs[] = {cos_out, sin_out};
    for (int32_t table = 0; table < 2; ++table) {
        values.begin(outputs[table], dsv4::rope_output_offset_elems(share.begin, p));
        for (int64_t row = share.begin; row < share.end; ++row) {
            const int64_t position = dsv4::naive::integer(positions, p.position_is_int64, p.num_positions, row);
            for (int32_t d = 0; d < p.rope_dim; ++d) {
                values.push(dsv4::naive::element<uint32_t>(tables[table], p.max_pos * p.table_row_elems,
                                                           dsv4::rope_table_offset_elems(position, p) + d));
            }
        }
        values.end();
    }
}
