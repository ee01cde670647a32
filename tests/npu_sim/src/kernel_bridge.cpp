// Puts the launches of simulated Ascend C kernels (tests/ascend_sim) on the streams of the simulated device.
//
// Generated launch stubs call ascend_sim_launch, which runs a kernel at once. This library is loaded before the kernels
// and defines the same function in front of the kernel simulator's: it keeps the launch and calls the other one later.
#include <acl/acl.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ascend_device_sim.h"
#include "ascend_sim/c_api.h"

namespace {

using LaunchFunction = decltype(&ascend_sim_launch);

struct Launch {
    std::string kernel;
    uint32_t block_dim;
    void (*body)(const void* args);
    std::vector<uint64_t> args;  // 8-byte units keep the argument block aligned
    size_t args_bytes;
};

// A kernel sees the memory of its own device only; the other's counts as not allocated.
class VisibleMemory {
  public:
    static VisibleMemory& Get() {
        static auto* instance = new VisibleMemory;
        return *instance;
    }

    std::mutex mutex;  // also keeps one kernel running at a time

    void Add(const AscendDeviceSimRange& range) {
        ranges_[range.device_base] = range;
        if (range.device == device_) {
            Register(range);
        }
    }

    void Remove(const AscendDeviceSimRange& range) {
        ranges_.erase(range.device_base);
        if (range.device == device_) {
            ascend_sim_unregister_gm(reinterpret_cast<const void*>(range.device_base));
        }
    }

    void Show(int32_t device) {
        if (device == device_) {
            return;
        }
        device_ = device;
        ascend_sim_clear_gm();
        for (const auto& [base, range] : ranges_) {
            if (range.device == device) {
                Register(range);
            }
        }
    }

  private:
    // Copies initialise memory behind the kernel simulator's back, so that all of it counts as written.
    static void Register(const AscendDeviceSimRange& range) {
        const std::string name = "memory of device " + std::to_string(range.device);
        ascend_sim_register_gm_mapped(range.device_base, range.host_base, range.bytes, name.c_str(), 1);
    }

    int32_t device_ = -1;
    std::map<uint64_t, AscendDeviceSimRange> ranges_;
};

uint32_t Run(void* context) {
    static const auto run_now = reinterpret_cast<LaunchFunction>(dlsym(RTLD_NEXT, "ascend_sim_launch"));
    const auto& launch = *static_cast<const Launch*>(context);
    VisibleMemory& memory = VisibleMemory::Get();
    const std::lock_guard lock(memory.mutex);
    memory.Show(ascend_device_sim_running_device());
    const uint32_t found =
        run_now(launch.kernel.c_str(), launch.block_dim, nullptr, launch.body, launch.args.data(), launch.args_bytes);
    return found == 0 ? 0 : static_cast<uint32_t>(ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
}

void Allocated(const AscendDeviceSimRange* range) {
    const std::lock_guard lock(VisibleMemory::Get().mutex);
    VisibleMemory::Get().Add(*range);
}

void Freed(const AscendDeviceSimRange* range) {
    const std::lock_guard lock(VisibleMemory::Get().mutex);
    VisibleMemory::Get().Remove(*range);
}

[[maybe_unused]] const bool hooked = (ascend_device_sim_set_memory_hooks(Allocated, Freed), true);

}  // namespace

extern "C" uint32_t ascend_sim_launch(const char* kernel, uint32_t block_dim, void* stream, void (*body)(const void*),
                                      const void* args, size_t args_bytes) {
    auto* launch = new Launch{kernel, block_dim, body, std::vector<uint64_t>(args_bytes / 8 + 1), args_bytes};
    memcpy(launch->args.data(), args, args_bytes);
    const auto destroy = [](void* context) { delete static_cast<Launch*>(context); };
    return static_cast<uint32_t>(ascend_device_sim_enqueue(stream, kernel, Run, destroy, launch));
}
