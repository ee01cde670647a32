// Block indices, kernel type, and the calls that concern all blocks.
#include "ascend_sim/cast.h"
#include "ascend_sim/sync.h"
#include "ascend_sim/tiling.h"
#include "block.h"
#include "config.h"
#include "fiber.h"
#include "gm.h"
#include "report.h"

namespace ascend_sim {

int64_t BlockIndex() { return CurrentBlock().index; }

int64_t BlockCount() { return CurrentBlock().count; }

void SetKernelType(KernelType type) { CurrentBlock().type = type; }

uint64_t TilingKey() { return GlobalConfig().tiling_key; }

void SetDequantScale(const Call& call, float scale) {
    Block& block = CurrentBlock();
    block.NoteCall(call);
    block.dequant_scale = scale;
    block.dequant_scale_set = true;
}

float DequantScale(const Call& call) {
    if (!CurrentBlock().dequant_scale_set) {
        Fail(call, Pipe::V, "cast.scale", "from int32_t to half without a factor; expected SetDeqScale before");
    }
    return CurrentBlock().dequant_scale;
}

int64_t SystemCycle() { return static_cast<int64_t>(CurrentBlock().clock.End()); }

void SyncAllBlocks(const Call& call) {
    Block& block = CurrentBlock();
    block.NoteCall(call);
    if (block.type != KernelType::MixAiv10) {
        Fail(call, Pipe::S, "sync.kernel_type",
             "SyncAll in a kernel without KERNEL_TYPE_MIX_AIV_1_0; a vector-only kernel has no cross-core scheduling");
    }
    if (block.count > static_cast<int64_t>(GlobalConfig().physical_blocks)) {
        Fail(call, Pipe::S, "sync.blocks", "%lld blocks meet in SyncAll; expected at most the %u physical cores",
             static_cast<long long>(block.count), GlobalConfig().physical_blocks);
    }
    ++block.counters.barriers;
    block.time.BarrierAll();
    block.clock.BarrierAll();
    block.met = true;
    block.sync_call = call;
    Fiber::Pause();
}

void SyncAllBlocksByMemory(const Call& call, const GmView& workspace, const UbView& scratch) {
    Block& block = CurrentBlock();
    const uint64_t needed = static_cast<uint64_t>(block.count) * kUbBlock;
    if (workspace.bytes < needed || scratch.bytes < needed) {
        Fail(call, Pipe::S, "sync.workspace",
             "workspace of %llu bytes and UB of %u bytes; expected at least 32 bytes per block, %llu",
             static_cast<unsigned long long>(workspace.bytes), scratch.bytes, static_cast<unsigned long long>(needed));
    }
    const GmAccess access = ResolveGm(call, Pipe::S, "workspace", workspace,
                                      Ranges{workspace.address, static_cast<uint32_t>(needed), 1, 0}, 4);
    for (uint64_t i = 0; i < needed; ++i) {
        if (access.host[i] != 0) {
            Fail(call, Pipe::S, "sync.workspace", "workspace byte %llu is %u; expected zeros at the first SyncAll",
                 static_cast<unsigned long long>(i), access.host[i]);
        }
    }
    SyncAllBlocks(call);
}

}  // namespace ascend_sim
