#include <torch/library.h>

#include "ops/write_req_tables/write_req_tables.h"
#include "torch/device_limits.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_write_req_tables.h"

namespace dsv4 {
namespace {

void write_req_tables_npu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                          const at::Tensor& c128_table, const at::Tensor& c4_state_table,
                          const at::Tensor& c128_state_table, const at::Tensor& req_pool_indices,
                          const at::Tensor& starts, const at::Tensor& ends, const at::Tensor& full_loc,
                          const at::Tensor& swa_loc, const at::Tensor& c4_loc, const at::Tensor& c128_loc,
                          const at::Tensor& c4_state_loc, const at::Tensor& c128_state_loc,
                          const std::optional<at::Tensor>& c4_state_starts,
                          const std::optional<at::Tensor>& c128_state_starts) {
    const PoolTables tables{{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const std::array<at::Tensor, kNumPools> loc{full_loc, swa_loc, c4_loc, c128_loc, c4_state_loc, c128_state_loc};
    const WriteReqTablesParams p =
        check_write_req_tables(tables, {req_pool_indices, starts, ends, c4_state_starts, c128_state_starts}, loc);
    check::device_rows("write_req_tables", p.num_rows);
    if (p.num_rows == 0) {
        return;
    }
    // Without starts of their own, the kernel does not read these two.
    const at::Tensor c4_starts = c4_state_starts.value_or(starts);
    const at::Tensor c128_starts = c128_state_starts.value_or(starts);
    npu::launch(
        "write_req_tables",
        {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table, req_pool_indices, starts, ends,
         c4_starts, c128_starts, full_loc, swa_loc, c4_loc, c128_loc, c4_state_loc, c128_state_loc},
        write_blocks(p, npu::vector_cores(full_table)),
        [p = p, table = npu::addresses(tables.tables), slot = npu::addresses(loc),
         row = npu::addresses(std::array<at::Tensor, 5>{req_pool_indices, starts, ends, c4_starts, c128_starts}),
         errors = npu::error_lanes(full_table)](uint32_t blocks, void* stream) mutable {
            return ACLRT_LAUNCH_KERNEL(write_req_tables)(
                blocks, stream, table[kFull], table[kSwa], table[kC4], table[kC128], table[kC4State], table[kC128State],
                row[0], row[1], row[2], row[3], row[4], slot[kFull], slot[kSwa], slot[kC4], slot[kC128], slot[kC4State],
                slot[kC128State], errors, &p);
        });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { m.impl("write_req_tables", &write_req_tables_npu); }

}  // namespace dsv4
