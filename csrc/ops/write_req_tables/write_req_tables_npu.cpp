#include "ops/write_req_tables/write_req_tables.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_write_req_tables.h"

namespace dsv4 {
namespace {

void launch_write_req_tables(const WriteReqTablesParams& p, const PoolTables& tables, const WriteRows& rows,
                             const PoolLoc& loc) {
    constexpr char kOp[] = "write_req_tables";
    check::device_rows(kOp, p.num_rows);
    if (p.num_rows == 0) {
        return;
    }
    // Without starts of their own, the kernel does not read these two.
    const at::Tensor c4_state_starts = rows.c4_state_starts.value_or(rows.starts);
    const at::Tensor c128_state_starts = rows.c128_state_starts.value_or(rows.starts);
    const std::array memory{tables[kFull],
                            tables[kSwa],
                            tables[kC4],
                            tables[kC128],
                            tables[kC4State],
                            tables[kC128State],
                            rows.req_pool_indices,
                            rows.starts,
                            rows.ends,
                            c4_state_starts,
                            c128_state_starts,
                            loc[kFull],
                            loc[kSwa],
                            loc[kC4],
                            loc[kC128],
                            loc[kC4State],
                            loc[kC128State]};
    npu::launch_on(kOp, memory, write_blocks(p, npu::vector_cores(rows.starts)),
                   [p = p, errors = npu::error_lanes(rows.starts)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(write_req_tables)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_write_req_tables<&launch_write_req_tables>(m); }

}  // namespace dsv4
