#include "ops/write_req_tables/write_req_tables.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_write_req_tables.h"

namespace dsv4 {
namespace {

void launch_write_req_tables(const WriteReqTablesParams& p, const WriteTensors& tensors) {
    constexpr char kOp[] = "write_req_tables";
    check::device_rows(kOp, p.num_rows);
    if (p.num_rows == 0) {
        return;
    }
    // The kernel does not use the table of a pool that is not written, and without starts of their own not the last
    // two.
    const auto table = [&](int32_t pool) { return is_written(pool, p) ? tensors.tables[pool] : tensors.starts; };
    const std::array memory{table(kFull),
                            table(kSwa),
                            table(kC4),
                            table(kC128),
                            table(kC4State),
                            table(kC128State),
                            tensors.req_pool_indices,
                            tensors.starts,
                            tensors.ends,
                            tensors.c4_state_starts.value_or(tensors.starts),
                            tensors.c128_state_starts.value_or(tensors.starts),
                            tensors.loc[kFull],
                            tensors.loc[kSwa],
                            tensors.loc[kC4],
                            tensors.loc[kC128],
                            tensors.loc[kC4State],
                            tensors.loc[kC128State]};
    npu::launch_on(kOp, memory, write_blocks(p, npu::vector_cores(tensors.starts)),
                   [p = p, errors = npu::error_lanes(tensors.starts)](uint32_t blocks, void* stream,
                                                                      auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(write_req_tables)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_write_req_tables<&launch_write_req_tables>(m); }

}  // namespace dsv4
