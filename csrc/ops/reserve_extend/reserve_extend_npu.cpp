#include <torch/library.h>

#include "ops/reserve_extend/reserve_extend.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_reserve_extend.h"

namespace dsv4 {
namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> reserve_extend_npu(
    const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table, const at::Tensor& c128_table,
    const at::Tensor& c4_state_table, const at::Tensor& c128_state_table, const at::Tensor& free_pages,
    const at::Tensor& segments, at::IntArrayRef num_pages, at::IntArrayRef num_slots, int64_t page_size) {
    const PoolTables tables{{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const ReserveExtendParams p = check_reserve_extend(tables, free_pages, segments, num_pages, num_slots, page_size);
    PoolSlots slots = empty_slots(tables, num_slots);
    if (p.num_segments > 0) {
        npu::launch("reserve_extend",
                    {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table, free_pages, segments,
                     slots[kFull], slots[kSwa], slots[kC4], slots[kC128], slots[kC4State], slots[kC128State]},
                    reserve_extend_blocks(p, npu::vector_cores(full_table)),
                    [p = p, table = npu::addresses(tables.tables), slot = npu::addresses(slots),
                     rings = free_pages.data_ptr(), list = segments.data_ptr(),
                     errors = npu::error_lanes(full_table)](uint32_t blocks, void* stream) mutable {
                        return ACLRT_LAUNCH_KERNEL(reserve_extend)(
                            blocks, stream, table[kFull], table[kSwa], table[kC4], table[kC128], table[kC4State],
                            table[kC128State], rings, list, slot[kFull], slot[kSwa], slot[kC4], slot[kC128],
                            slot[kC4State], slot[kC128State], errors, &p);
                    });
    }
    return {std::move(slots[kFull]), std::move(slots[kSwa]),     std::move(slots[kC4]),
            std::move(slots[kC128]), std::move(slots[kC4State]), std::move(slots[kC128State])};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { m.impl("reserve_extend", &reserve_extend_npu); }

}  // namespace dsv4
