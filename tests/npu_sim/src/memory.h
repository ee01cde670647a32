// Device memory and page-locked host memory.
//
// Device addresses lie in reserved address space without access rights: a host that dereferences one crashes. The bytes
// themselves lie at a fixed distance, where only simulated kernels and copies look. Addresses are never handed out
// twice, so a stale pointer is always recognised.
#pragma once

#include <acl/acl.h>

#include <cstddef>
#include <cstdint>

#include "ascend_device_sim.h"

namespace device_sim {

constexpr int32_t kDevices = 2;
constexpr uint64_t kDeviceBytes = uint64_t{8} << 30;  // capacity that a device reports and enforces
constexpr uint8_t kPoison = 0xA5;                     // fills fresh device and page-locked host memory

enum class Place { Nowhere, Live, Freed };

// Whether the address is device memory at all, and if live, of which allocation.
Place Locate(const void* address, AscendDeviceSimRange* range);

aclError AllocateDevice(int32_t device, size_t bytes, void** pointer);
aclError FreeDevice(void* pointer);
size_t FreeBytes(int32_t device);

aclError AllocatePinned(size_t bytes, void** pointer);
aclError FreePinned(void* pointer);
bool IsPinned(const void* pointer, size_t bytes);

// Readable address of `bytes` bytes of device memory, nullptr (error recorded for `function`) unless they lie in one
// live allocation of `device`; -1 accepts any device.
uint8_t* Alias(const char* function, const void* address, size_t bytes, int32_t device);

}  // namespace device_sim
