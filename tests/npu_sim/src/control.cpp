// The C API of ascend_device_sim.h: launches, and what tests set and read.
#include <map>
#include <string>

#include "ascend_device_sim.h"
#include "capture.h"
#include "context.h"
#include "memory.h"
#include "report.h"

using namespace device_sim;

namespace {

struct PlannedFailure {
    aclError error;
    uint32_t count;
};

std::map<std::string, PlannedFailure>& planned_failures() {
    static auto* instance = new std::map<std::string, PlannedFailure>;
    return *instance;
}

aclError TakePlannedFailure(const std::string& kernel) {
    for (const std::string& name : {kernel, std::string()}) {
        const auto entry = planned_failures().find(name);
        if (entry != planned_failures().end() && entry->second.count > 0) {
            --entry->second.count;
            return entry->second.error;
        }
    }
    return ACL_SUCCESS;
}

// Owns the launch context until the last run; its deleter is the stub's destroy function.
std::shared_ptr<void> Own(void* context, void (*destroy)(void*)) {
    return std::shared_ptr<void>(context, [destroy](void* pointer) {
        if (destroy != nullptr) {
            destroy(pointer);
        }
    });
}

const char* Keep(std::string text) {
    thread_local std::string kept;
    kept = std::move(text);
    return kept.c_str();
}

}  // namespace

extern "C" {

int32_t ascend_device_sim_resolve(const void* address, AscendDeviceSimRange* range) {
    const char* function = "ascend_device_sim_resolve";
    if (Alias(function, address, 0, ascend_device_sim_running_device()) == nullptr) {
        return ACL_ERROR_RT_PARAM_INVALID;
    }
    return Locate(address, range) == Place::Live ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

void* ascend_device_sim_host_alias(const void* address) {
    return Alias("ascend_device_sim_host_alias", address, 0, ascend_device_sim_running_device());
}

int32_t ascend_device_sim_enqueue(void* handle, const char* kernel, uint32_t (*run)(void*), void (*destroy)(void*),
                                  void* context) {
    const std::shared_ptr<void> owned = Own(context, destroy);
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForWork(kernel, handle, &stream)) {
        return error;
    }
    if (const aclError error = TakePlannedFailure(kernel)) {
        return Fail(error, kernel, "the test asked for this launch to fail");
    }
    Count(std::string(stream->capture == nullptr ? "launch." : "captured_launch.") + kernel);
    auto work = std::make_shared<Work>();
    work->name = kernel;
    work->run = [run, owned, name = std::string(kernel)] {
        Count("run." + name);
        return static_cast<aclError>(run(owned.get()));
    };
    return Submit(lock, kernel, stream, std::move(work));
}

int32_t ascend_device_sim_set_mode(int32_t mode) {
    if (mode < ASCEND_DEVICE_SIM_LAZY || mode > ASCEND_DEVICE_SIM_SYNCHRONOUS) {
        return Fail(ACL_ERROR_INVALID_PARAM, "ascend_device_sim_set_mode", "mode %d, expected 0..2", mode);
    }
    Scheduler::Lock lock(Scheduler::Get().mutex);
    Scheduler::Get().SetMode(lock, mode);
    return ACL_SUCCESS;
}

int32_t ascend_device_sim_mode() {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    return Scheduler::Get().mode();
}

int32_t ascend_device_sim_set_replay_order(int32_t order) {
    if (order != ASCEND_DEVICE_SIM_REPLAY_AS_CAPTURED && order != ASCEND_DEVICE_SIM_REPLAY_LATEST_FIRST) {
        return Fail(ACL_ERROR_INVALID_PARAM, "ascend_device_sim_set_replay_order", "order %d, expected 0 or 1", order);
    }
    Scheduler::Lock lock(Scheduler::Get().mutex);
    SetReplayOrder(order);
    return ACL_SUCCESS;
}

void ascend_device_sim_fail_launches(const char* kernel, int32_t error, uint32_t count) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    planned_failures()[kernel] = PlannedFailure{error, count};
}

const char* ascend_device_sim_counters() { return Keep(CountersText()); }
const char* ascend_device_sim_errors() { return Keep(ErrorsText()); }
void ascend_device_sim_reset_counters() { ResetCounters(); }

void ascend_device_sim_reset_errors() {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    ResetErrors();
    Scheduler::Get().ForgetErrors();
}

}  // extern "C"
