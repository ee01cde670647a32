// ACL: memory and copies.
#include <acl/acl.h>

#include <cstring>

#include "capture.h"
#include "context.h"
#include "memory.h"
#include "report.h"

namespace device_sim {

namespace {

struct Copy {
    void* target;
    const void* source;
    size_t bytes;
    aclrtMemcpyKind kind;
    int32_t device;  // that executes the copy
};

bool OnDevice(const void* address) {
    AscendDeviceSimRange range;
    return Locate(address, &range) != Place::Nowhere;
}

bool FromDevice(aclrtMemcpyKind kind) {
    return kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
}

bool ToDevice(aclrtMemcpyKind kind) { return kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE; }

const char* KindName(aclrtMemcpyKind kind) {
    switch (kind) {
        case ACL_MEMCPY_HOST_TO_HOST:
            return "h2h";
        case ACL_MEMCPY_HOST_TO_DEVICE:
            return "h2d";
        case ACL_MEMCPY_DEVICE_TO_HOST:
            return "d2h";
        default:
            return "d2d";
    }
}

// Checks one end of a copy and returns its readable address, nullptr after recording an error.
uint8_t* End(const char* function, const Copy& copy, const void* address, bool on_device) {
    if (!on_device) {
        if (OnDevice(address)) {
            Fail(ACL_ERROR_RT_PARAM_INVALID, function, "%p is device memory, expected host memory for %s", address,
                 KindName(copy.kind));
            return nullptr;
        }
        return static_cast<uint8_t*>(const_cast<void*>(address));
    }
    AscendDeviceSimRange range;
    const bool peer = copy.kind == ACL_MEMCPY_DEVICE_TO_DEVICE && Locate(address, &range) == Place::Live &&
                      PeerAccess(copy.device, range.device);
    return Alias(function, address, copy.bytes, peer ? -1 : copy.device);
}

aclError Check(const char* function, const Copy& copy, size_t target_bytes) {
    if (copy.bytes > target_bytes) {
        return Fail(ACL_ERROR_RT_PARAM_INVALID, function, "%zu bytes into a target of %zu", copy.bytes, target_bytes);
    }
    const bool sound = End(function, copy, copy.target, ToDevice(copy.kind)) != nullptr &&
                       End(function, copy, copy.source, FromDevice(copy.kind)) != nullptr;
    return sound ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

// The host ends of an asynchronous copy must still be page-locked memory when it runs.
aclError Perform(const char* function, const Copy& copy, bool pinned) {
    for (const void* address : {static_cast<const void*>(copy.target), copy.source}) {
        if (pinned && !OnDevice(address) && !IsPinned(address, copy.bytes)) {
            return Fail(ACL_ERROR_RT_PARAM_INVALID, function, "page-locked memory %p was freed before the copy ran",
                        address);
        }
    }
    uint8_t* target = End(function, copy, copy.target, ToDevice(copy.kind));
    const uint8_t* source = End(function, copy, copy.source, FromDevice(copy.kind));
    if (target == nullptr || source == nullptr) {
        return ACL_ERROR_RT_PARAM_INVALID;
    }
    memmove(target, source, copy.bytes);
    return ACL_SUCCESS;
}

aclrtMemcpyKind Resolve(aclrtMemcpyKind kind, const void* target, const void* source) {
    switch (kind) {
        case ACL_MEMCPY_DEFAULT:
            if (OnDevice(source)) {
                return OnDevice(target) ? ACL_MEMCPY_DEVICE_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST;
            }
            return OnDevice(target) ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_HOST_TO_HOST;
        case ACL_MEMCPY_INNER_DEVICE_TO_DEVICE:
        case ACL_MEMCPY_INTER_DEVICE_TO_DEVICE:
            return ACL_MEMCPY_DEVICE_TO_DEVICE;
        default:
            return kind;
    }
}

void CountCopy(const Copy& copy, const char* manner) {
    const std::string name = std::string("copy.") + KindName(copy.kind) + "." + manner;
    Count(name);
    Count(name + ".bytes", copy.bytes);
}

aclError Allocate(const char* function, void** pointer, size_t bytes) {
    if (CurrentDevice() < 0) {
        return Fail(ACL_ERROR_RT_CONTEXT_NULL, function, "no device is set");
    }
    if (bytes == 0) {
        return Fail(ACL_ERROR_RT_PARAM_INVALID, function, "0 bytes");
    }
    Count("malloc");
    return AllocateDevice(CurrentDevice(), bytes, pointer);
}

}  // namespace
}  // namespace device_sim

using namespace device_sim;

extern "C" {

aclError aclrtMalloc(void** pointer, size_t bytes, aclrtMemMallocPolicy) {
    return Allocate("aclrtMalloc", pointer, bytes);
}

aclError aclrtMallocAlign32(void** pointer, size_t bytes, aclrtMemMallocPolicy) {
    return Allocate("aclrtMallocAlign32", pointer, bytes);
}

aclError aclrtFree(void* pointer) {
    Count("free");
    return FreeDevice(pointer);
}

aclError aclrtMallocHost(void** pointer, size_t bytes) {
    Count("malloc_host");
    return AllocatePinned(bytes, pointer);
}

aclError aclrtFreeHost(void* pointer) { return FreePinned(pointer); }

aclError aclrtGetMemInfo(aclrtMemAttr, size_t* free, size_t* total) {
    if (CurrentDevice() < 0) {
        return Fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetMemInfo", "no device is set");
    }
    *free = FreeBytes(CurrentDevice());
    *total = kDeviceBytes;
    return ACL_SUCCESS;
}

aclError aclrtPointerGetAttributes(const void* pointer, aclrtPtrAttributes* attributes) {
    memset(attributes, 0, sizeof *attributes);
    AscendDeviceSimRange range;
    if (Locate(pointer, &range) == Place::Live) {
        attributes->location = {static_cast<uint32_t>(range.device), ACL_MEM_LOCATION_TYPE_DEVICE};
    } else {
        attributes->location = {0,
                                IsPinned(pointer, 1) ? ACL_MEM_LOCATION_TYPE_HOST : ACL_MEM_LOCATION_TYPE_UNREGISTERED};
    }
    return ACL_SUCCESS;
}

// Orders nothing: the caller must have waited for the streams that it depends on.
aclError aclrtMemcpy(void* target, size_t target_bytes, const void* source, size_t bytes, aclrtMemcpyKind kind) {
    const char* function = "aclrtMemcpy";
    const Copy copy{target, source, bytes, Resolve(kind, target, source), CurrentDevice()};
    {
        Scheduler::Lock lock(Scheduler::Get().mutex);
        if (const aclError error = ForbidDuringCapture(function)) {
            return error;
        }
    }
    if (const aclError error = Check(function, copy, target_bytes)) {
        return error;
    }
    CountCopy(copy, "blocking");
    return Perform(function, copy, false);
}

aclError aclrtMemcpyAsync(void* target, size_t target_bytes, const void* source, size_t bytes, aclrtMemcpyKind kind,
                          aclrtStream handle) {
    const char* function = "aclrtMemcpyAsync";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForWork(function, handle, &stream)) {
        return error;
    }
    const Copy copy{target, source, bytes, Resolve(kind, target, source), stream->device};
    if (const aclError error = Check(function, copy, target_bytes)) {
        return error;
    }
    const bool pageable =
        (!ToDevice(copy.kind) && !IsPinned(target, bytes)) || (!FromDevice(copy.kind) && !IsPinned(source, bytes));
    if (pageable) {
        if (const aclError error = ForbidOnCapturedStream(function, *stream, ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC)) {
            return error;
        }
    }
    CountCopy(copy, pageable ? "pageable" : stream->capture != nullptr ? "captured" : "async");
    auto work = std::make_shared<Work>();
    work->name = std::string("copy ") + KindName(copy.kind);
    work->run = [copy, function, pageable] { return Perform(function, copy, !pageable); };
    const aclError error = Submit(lock, function, stream, std::move(work));
    if (pageable && error == ACL_SUCCESS) {
        Scheduler::Get().RunUntil(lock, stream, stream->enqueued);
    }
    return error;
}

aclError aclrtMemset(void* target, size_t target_bytes, int32_t value, size_t bytes) {
    const char* function = "aclrtMemset";
    uint8_t* host = Alias(function, target, bytes, CurrentDevice());
    if (host == nullptr || bytes > target_bytes) {
        return ACL_ERROR_RT_PARAM_INVALID;
    }
    Count("memset");
    memset(host, value, bytes);
    return ACL_SUCCESS;
}

aclError aclrtMemsetAsync(void* target, size_t target_bytes, int32_t value, size_t bytes, aclrtStream handle) {
    const char* function = "aclrtMemsetAsync";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForWork(function, handle, &stream)) {
        return error;
    }
    const int32_t device = stream->device;
    if (bytes > target_bytes || Alias(function, target, bytes, device) == nullptr) {
        return ACL_ERROR_RT_PARAM_INVALID;
    }
    Count("memset");
    auto work = std::make_shared<Work>();
    work->name = "memset";
    work->run = [=]() -> aclError {
        uint8_t* host = Alias(function, target, bytes, device);
        if (host == nullptr) {
            return ACL_ERROR_RT_PARAM_INVALID;
        }
        memset(host, value, bytes);
        return ACL_SUCCESS;
    };
    return Submit(lock, function, stream, std::move(work));
}

}  // extern "C"
