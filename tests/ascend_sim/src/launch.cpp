#include "ascend_sim/launch.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "block.h"
#include "config.h"
#include "gm.h"
#include "launches.h"
#include "report.h"

namespace ascend_sim {

namespace {

struct Task {
    std::string kernel;
    uint32_t blocks;
    void (*body)(const void*);
    std::vector<uint64_t> args;  // 8-byte units keep the argument block aligned
};

std::vector<uint32_t> BlockSequence(uint32_t blocks, std::mt19937_64& random) {
    std::vector<uint32_t> sequence(blocks);
    std::iota(sequence.begin(), sequence.end(), 0u);
    switch (GlobalConfig().order) {
        case BlockOrder::Random:
            std::shuffle(sequence.begin(), sequence.end(), random);
            break;
        case BlockOrder::Ascending:
            break;
        case BlockOrder::Descending:
            std::reverse(sequence.begin(), sequence.end());
            break;
    }
    return sequence;
}

void RunBlock(const Task& task, uint32_t index, uint64_t poison, LaunchCounters& counters) {
    Block& block = CurrentBlock();
    block.Begin(task.kernel.c_str(), index, task.blocks, poison);
    try {
        task.body(task.args.data());
        block.Finish();
    } catch (const BlockAborted&) {
        block.running = false;
    }
    counters.per_block[index] = block.counters;
    counters.total.Add(block.counters);
}

uint32_t RunTask(const Task& task) {
    std::lock_guard<std::mutex> lock(SimulatorMutex());
    const uint64_t errors_before = GlobalReport().total();
    CurrentBlock().kernel = task.kernel.c_str();
    CurrentBlock().count = task.blocks;
    LaunchCounters counters;
    counters.kernel = task.kernel;
    counters.blocks = task.blocks;
    if (task.blocks < 1 || task.blocks > 65535) {
        GlobalReport().Add(Call{"launch", CallSite{"", 0}}, "S", "launch.block_dim",
                           Format("block dim is %u; expected 1..65535", task.blocks));
        return 1;
    }
    counters.per_block.resize(task.blocks);
    NextGmEpoch();
    ResetTraffic();
    ForgetScalarStores();
    static uint64_t launch_number = 0;
    std::mt19937_64 random(GlobalConfig().seed * 0x9e3779b97f4a7c15u + launch_number++);
    for (const uint32_t index : BlockSequence(task.blocks, random)) {
        RunBlock(task, index, random(), counters);
    }
    counters.traffic = CollectTraffic();
    Launches().push_back(std::move(counters));
    CurrentBlock().kernel = "";
    return GlobalReport().total() == errors_before ? 0 : 1;
}

ascend_sim_launcher_t g_launcher = nullptr;

}  // namespace

std::vector<LaunchCounters>& Launches() {
    static std::vector<LaunchCounters> launches;
    return launches;
}

std::mutex& SimulatorMutex() {
    static std::mutex mutex;
    return mutex;
}

}  // namespace ascend_sim

extern "C" {

uint32_t ascend_sim_launch(const char* kernel, uint32_t block_dim, void* stream, void (*body)(const void*),
                           const void* args, size_t args_bytes) {
    using ascend_sim::Task;
    auto* task = new Task{kernel, block_dim, body, std::vector<uint64_t>((args_bytes + 7) / 8 + 1)};
    std::copy_n(static_cast<const uint8_t*>(args), args_bytes, reinterpret_cast<uint8_t*>(task->args.data()));
    const auto run = [](void* opaque) { return ascend_sim::RunTask(*static_cast<Task*>(opaque)); };
    const auto destroy = [](void* opaque) { delete static_cast<Task*>(opaque); };
    if (ascend_sim::g_launcher != nullptr) {
        ascend_sim::g_launcher(run, destroy, task, stream);
        return 0;
    }
    const uint32_t status = run(task);
    destroy(task);
    return status;
}

void ascend_sim_set_launcher(ascend_sim_launcher_t launcher) {
    ascend_sim::g_launcher = launcher;
}

}  // extern "C"
