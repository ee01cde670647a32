#include "kernel_operator.h"
#include "ops/rope_tables/rope_tables_index.h"
#include "scalar_run.h"

// float32 tables.
extern "C" __global__ __aicore__ void rope_tables(GM_ADDR freqs, GM_ADDR cos_out, GM_ADDR sin_out,
                                                  RopeTablesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    dsv4::naive::ScalarRun<uint32_t> values(&pipe);
    const dsv4::BlockShare share = dsv4::block_share(p.max_pos, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    const int64_t elems = dsv4::rope_tables_real_offset_elems(p.max_pos - 1, p.num_pairs, p);
    GM_ADDR outputs[] = {cos_out, sin_out};
    for (int32_t table = 0; table < 2; ++table) {
        values.begin(outputs[table], dsv4::rope_tables_pair_offset_elems(share.begin, 0, p));
        for (int64_t row = share.begin; row < share.end; ++row) {
            for (int64_t pair = 0; pair < p.num_pairs; ++pair) {
                const uint32_t value = dsv4::naive::element<uint32_t>(
                    freqs, elems, dsv4::rope_tables_real_offset_elems(row, pair, p) + table);
                values.push(value);
                values.push(value);
            }
        }
        values.end();
    }
}
