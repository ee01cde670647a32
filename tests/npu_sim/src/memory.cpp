#include "memory.h"

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "report.h"

namespace device_sim {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kReserved = uint64_t{1} << 40;  // address space a device, bytes; large enough never to reuse any

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

struct Arena {
    uint64_t device_base = 0;
    uint8_t* host_base = nullptr;
    uint64_t next = kPage;  // offset of the next allocation
    uint64_t used_bytes = 0;
    std::map<uint64_t, uint64_t> live;  // offset -> bytes as asked
};

struct Memory {
    std::mutex mutex;
    std::array<Arena, kDevices> arenas;
    std::map<uintptr_t, size_t> pinned;  // address -> bytes
    AscendDeviceSimMemoryHook allocated = nullptr;
    AscendDeviceSimMemoryHook freed = nullptr;

    Memory() {
        for (Arena& arena : arenas) {
            arena.device_base = reinterpret_cast<uint64_t>(Reserve());
            arena.host_base = static_cast<uint8_t*>(Reserve());
        }
    }

    static void* Reserve() {
        void* start = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return start == MAP_FAILED ? nullptr : start;
    }
};

Memory& memory() {
    static auto* instance = new Memory;
    return *instance;
}

AscendDeviceSimRange RangeOf(int32_t device, const Arena& arena, uint64_t offset, uint64_t bytes) {
    return AscendDeviceSimRange{arena.device_base + offset, bytes, arena.host_base + offset, device};
}

void Announce(AscendDeviceSimMemoryHook hook, const AscendDeviceSimRange& range) {
    if (hook != nullptr) {
        hook(&range);
    }
}

}  // namespace

Place Locate(const void* address, AscendDeviceSimRange* range) {
    Memory& all = memory();
    std::lock_guard lock(all.mutex);
    const auto value = reinterpret_cast<uint64_t>(address);
    for (int32_t device = 0; device < kDevices; ++device) {
        const Arena& arena = all.arenas[device];
        if (value < arena.device_base || value >= arena.device_base + kReserved) {
            continue;
        }
        const uint64_t offset = value - arena.device_base;
        auto entry = arena.live.upper_bound(offset);
        if (entry == arena.live.begin()) {
            return Place::Freed;
        }
        --entry;
        // The address just behind the last byte belongs to the allocation: an empty tensor may point there.
        if (offset > entry->first + entry->second) {
            return Place::Freed;
        }
        *range = RangeOf(device, arena, entry->first, entry->second);
        return Place::Live;
    }
    return Place::Nowhere;
}

aclError AllocateDevice(int32_t device, size_t bytes, void** pointer) {
    Memory& all = memory();
    std::lock_guard lock(all.mutex);
    Arena& arena = all.arenas[device];
    const uint64_t span = RoundUp(bytes, kPage);
    if (arena.host_base == nullptr || arena.used_bytes + span > kDeviceBytes || arena.next + span > kReserved - kPage) {
        return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMalloc", "%zu bytes asked, %zu free on device %d", bytes,
                    static_cast<size_t>(kDeviceBytes - arena.used_bytes), device);
    }
    uint8_t* host = arena.host_base + arena.next;
    if (mprotect(host, span, PROT_READ | PROT_WRITE) != 0) {
        return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMalloc", "the host has no %zu bytes", bytes);
    }
    memset(host, kPoison, span);
    arena.live[arena.next] = bytes;
    *pointer = reinterpret_cast<void*>(arena.device_base + arena.next);
    Announce(all.allocated, RangeOf(device, arena, arena.next, bytes));
    arena.next += span + kPage;  // the untouched page behind stops a kernel that runs over the end
    arena.used_bytes += span;
    return ACL_SUCCESS;
}

aclError FreeDevice(void* pointer) {
    Memory& all = memory();
    std::lock_guard lock(all.mutex);
    for (int32_t device = 0; device < kDevices; ++device) {
        Arena& arena = all.arenas[device];
        const auto entry = arena.live.find(reinterpret_cast<uint64_t>(pointer) - arena.device_base);
        if (entry == arena.live.end()) {
            continue;
        }
        Announce(all.freed, RangeOf(device, arena, entry->first, entry->second));
        const uint64_t span = RoundUp(entry->second, kPage);
        uint8_t* host = arena.host_base + entry->first;
        madvise(host, span, MADV_DONTNEED);
        mprotect(host, span, PROT_NONE);
        arena.used_bytes -= span;
        arena.live.erase(entry);
        return ACL_SUCCESS;
    }
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtFree", "%p is not the start of a live allocation", pointer);
}

size_t FreeBytes(int32_t device) {
    Memory& all = memory();
    std::lock_guard lock(all.mutex);
    return kDeviceBytes - all.arenas[device].used_bytes;
}

aclError AllocatePinned(size_t bytes, void** pointer) {
    const size_t span = RoundUp(bytes == 0 ? 1 : bytes, kPage);
    void* start = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocHost", "the host has no %zu bytes", bytes);
    }
    memset(start, kPoison, span);
    std::lock_guard lock(memory().mutex);
    memory().pinned[reinterpret_cast<uintptr_t>(start)] = span;
    *pointer = start;
    return ACL_SUCCESS;
}

aclError FreePinned(void* pointer) {
    std::lock_guard lock(memory().mutex);
    const auto entry = memory().pinned.find(reinterpret_cast<uintptr_t>(pointer));
    if (entry == memory().pinned.end()) {
        return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtFreeHost", "%p is not page-locked memory", pointer);
    }
    munmap(pointer, entry->second);
    memory().pinned.erase(entry);
    return ACL_SUCCESS;
}

bool IsPinned(const void* pointer, size_t bytes) {
    std::lock_guard lock(memory().mutex);
    const auto value = reinterpret_cast<uintptr_t>(pointer);
    auto entry = memory().pinned.upper_bound(value);
    if (entry == memory().pinned.begin()) {
        return false;
    }
    --entry;
    return value + bytes <= entry->first + entry->second;
}

uint8_t* Alias(const char* function, const void* address, size_t bytes, int32_t device) {
    AscendDeviceSimRange range;
    const Place place = Locate(address, &range);
    if (place != Place::Live) {
        Fail(ACL_ERROR_RT_PARAM_INVALID, function, "%p is %s", address,
             place == Place::Freed ? "freed or unallocated device memory" : "not device memory");
        return nullptr;
    }
    const uint64_t offset = reinterpret_cast<uint64_t>(address) - range.device_base;
    if (offset + bytes > range.bytes) {
        Fail(ACL_ERROR_RT_PARAM_INVALID, function, "%zu bytes at %p leave an allocation of %zu bytes at offset %zu",
             bytes, address, static_cast<size_t>(range.bytes), static_cast<size_t>(offset));
        return nullptr;
    }
    if (device >= 0 && range.device != device) {
        Fail(ACL_ERROR_RT_PARAM_INVALID, function, "%p is memory of device %d, expected device %d", address,
             range.device, device);
        return nullptr;
    }
    return range.host_base + offset;
}

}  // namespace device_sim

extern "C" void ascend_device_sim_set_memory_hooks(AscendDeviceSimMemoryHook allocated,
                                                   AscendDeviceSimMemoryHook freed) {
    using namespace device_sim;
    Memory& all = memory();
    std::lock_guard lock(all.mutex);
    all.allocated = allocated;
    all.freed = freed;
    for (int32_t device = 0; device < kDevices; ++device) {
        for (const auto& [offset, bytes] : all.arenas[device].live) {
            Announce(allocated, RangeOf(device, all.arenas[device], offset, bytes));
        }
    }
}
