// Block indices, kernel type, and the calls that concern all blocks.
#include "ascend_sim/sync.h"
#include "block.h"
#include "config.h"
#include "report.h"

namespace ascend_sim {

int64_t BlockIndex() {
    return CurrentBlock().index;
}

int64_t BlockCount() {
    return CurrentBlock().count;
}

void SetKernelType(KernelType type) {
    CurrentBlock().type = type;
}

int64_t SystemCycle() {
    const Counters& counters = CurrentBlock().counters;
    return static_cast<int64_t>(counters.cycles[0] + counters.cycles[1] + counters.cycles[2] + counters.cycles[3]);
}

void SyncAllBlocks(const Call& call) {
    const Block& block = CurrentBlock();
    if (block.type != KernelType::MixAiv10) {
        Fail(call, Pipe::S, "sync.kernel_type",
             "SyncAll in a kernel without KERNEL_TYPE_MIX_AIV_1_0; a vector-only kernel has no cross-core scheduling");
    }
    if (block.count > static_cast<int64_t>(GlobalConfig().physical_blocks)) {
        Fail(call, Pipe::S, "sync.blocks", "%lld blocks meet in SyncAll; expected at most the %u physical cores",
             static_cast<long long>(block.count), GlobalConfig().physical_blocks);
    }
    Fail(call, Pipe::S, "sync.not_simulated", "blocks run one after another here and cannot meet");
}

}  // namespace ascend_sim
