#include "ascend_sim/launch.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "block.h"
#include "config.h"
#include "fiber.h"
#include "gm.h"
#include "launches.h"
#include "report.h"

namespace ascend_sim {

namespace {

constexpr size_t kKeptLaunches = 256;

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

bool g_aborted = false;  // a block of this launch did not come to its end

void BlockBody(const Task& task) {
    Block& block = CurrentBlock();
    try {
        task.body(task.args.data());
        block.Finish();
    } catch (const BlockAborted&) {
        block.running = false;
        g_aborted = true;
    }
}

// Runs the blocks of one launch, parking those that wait in SyncAll until all have come.
class BlockScheduler {
  public:
    BlockScheduler(const Task& task, LaunchCounters& counters) : task_(task), counters_(counters) {}

    void Start(uint32_t index, uint64_t poison) {
        CurrentBlock().Begin(task_.kernel.c_str(), index, task_.blocks, poison, task_.args.size() * sizeof(uint64_t));
        std::unique_ptr<Fiber> fiber = spare_ != nullptr ? std::move(spare_) : std::make_unique<Fiber>();
        const bool ended = fiber->Start([this] { BlockBody(task_); });
        Settle(index, ended, std::move(fiber));
    }

    // After every block has been started: lets the waiting blocks go on together until none is left.
    void Finish(std::mt19937_64& random) {
        while (!waiting_.empty()) {
            std::vector<Waiting> round = std::move(waiting_);
            waiting_.clear();
            if (round.size() != task_.blocks) {
                ReportMissing(round);
                return;
            }
            NextGmEpoch();
            std::shuffle(round.begin(), round.end(), random);
            for (Waiting& one : round) {
                UnparkBlock(*one.parked);
                const bool ended = one.fiber->Resume();
                Settle(one.index, ended, std::move(one.fiber));
            }
        }
    }

  private:
    struct Waiting {
        uint32_t index;
        std::unique_ptr<Fiber> fiber;
        std::unique_ptr<ParkedBlock> parked;
    };

    void Settle(uint32_t index, bool ended, std::unique_ptr<Fiber> fiber) {
        if (ended) {
            counters_.per_block[index] = CurrentBlock().counters;
            counters_.total.Add(CurrentBlock().counters);
            spare_ = std::move(fiber);
            return;
        }
        auto parked = std::make_unique<ParkedBlock>();
        ParkBlock(*parked);
        waiting_.push_back(Waiting{index, std::move(fiber), std::move(parked)});
    }

    // The stacks of the blocks that wait for ever are dropped as they are.
    void ReportMissing(std::vector<Waiting>& round) {
        UnparkBlock(*round.front().parked);
        Complain(CurrentBlock().sync_call, Pipe::S, "sync.missing",
                 "%zu of %u blocks reach SyncAll: they would hang; expected all of them", round.size(), task_.blocks);
        CurrentBlock().running = false;
        g_aborted = true;
    }

    const Task& task_;
    LaunchCounters& counters_;
    std::unique_ptr<Fiber> spare_;
    std::vector<Waiting> waiting_;
};

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
    g_aborted = false;
    static uint64_t launch_number = 0;
    std::mt19937_64 random(GlobalConfig().seed * 0x9e3779b97f4a7c15u + launch_number++);
    BlockScheduler scheduler(task, counters);
    for (const uint32_t index : BlockSequence(task.blocks, random)) {
        scheduler.Start(index, random());
    }
    scheduler.Finish(random);
    if (!g_aborted) {
        ReportUnwrittenOutputs(task.args);
    }
    counters.traffic = CollectTraffic();
    if (Launches().size() >= kKeptLaunches) {
        Launches().erase(Launches().begin());
    }
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

void ascend_sim_set_launcher(ascend_sim_launcher_t launcher) { ascend_sim::g_launcher = launcher; }

}  // extern "C"
