// ACL: initialisation, devices, contexts, capabilities.
#include <acl/acl.h>
#include <acl/acl_op_compiler.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "capture.h"
#include "context.h"
#include "memory.h"
#include "report.h"

namespace device_sim {
namespace {

constexpr int64_t kVectorCores = 40;
constexpr int64_t kCubeCores = 20;
constexpr int64_t kL2Bytes = int64_t{192} << 20;
constexpr const char* kSocName = "Ascend910B3";
constexpr const char* kCannVersion = "8.1.RC1";

thread_local int32_t current_device = -1;
std::atomic<bool> initialized = false;
std::array<std::atomic<int64_t>, ACL_OPT_STRONG_CONSISTENCY + 1> system_options{};
std::array<std::array<std::atomic<bool>, kDevices>, kDevices> peer_access{};

// A context handle is the address of its device's entry.
std::array<char, kDevices> contexts;

// $ASCEND_DEVICE_SIM_VECTOR_CORES makes it a device with more or fewer of them.
int64_t VectorCores() {
    const char* count = std::getenv("ASCEND_DEVICE_SIM_VECTOR_CORES");
    return count == nullptr ? kVectorCores : std::strtoll(count, nullptr, 10);
}

bool KnownOption(aclSysParamOpt option) { return option >= 0 && option < static_cast<int>(system_options.size()); }

bool Valid(int64_t device) { return device >= 0 && device < kDevices; }

aclError Invalid(const char* function, int64_t device) {
    return Fail(ACL_ERROR_RT_INVALID_DEVICEID, function, "device %lld, expected 0..%d", static_cast<long long>(device),
                kDevices - 1);
}

}  // namespace

int32_t CurrentDevice() { return current_device; }

aclError SetCurrentDevice(const char* function, int32_t device) {
    if (!Valid(device)) {
        return Invalid(function, device);
    }
    current_device = device;
    return ACL_SUCCESS;
}

bool PeerAccess(int32_t device, int32_t peer) { return device == peer || peer_access[device][peer]; }

}  // namespace device_sim

using namespace device_sim;

extern "C" {

aclError aclInit(const char*) { return initialized.exchange(true) ? ACL_ERROR_REPEAT_INITIALIZE : ACL_SUCCESS; }

aclError aclFinalize() {
    initialized = false;
    return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t device) { return SetCurrentDevice("aclrtSetDevice", device); }

aclError aclrtGetDevice(int32_t* device) {
    if (current_device < 0) {
        return ACL_ERROR_RT_CONTEXT_NULL;  // torch_npu asks before it sets one: not worth recording
    }
    *device = current_device;
    return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t device) {
    if (!Valid(device)) {
        return Invalid("aclrtResetDevice", device);
    }
    Scheduler::Lock lock(Scheduler::Get().mutex);
    for (const auto& stream : Scheduler::Get().StreamsOf(device)) {
        Scheduler::Get().RunUntil(lock, stream, stream->enqueued);
    }
    return ACL_SUCCESS;
}

aclError aclrtGetDeviceCount(uint32_t* count) {
    *count = kDevices;
    return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
    if (current_device < 0) {
        return ACL_ERROR_RT_CONTEXT_NULL;
    }
    *context = &contexts[current_device];
    return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    const auto device = static_cast<char*>(context) - contexts.data();
    if (!Valid(device)) {
        return Fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtSetCurrentContext", "%p is not a context", context);
    }
    current_device = static_cast<int32_t>(device);
    return ACL_SUCCESS;
}

aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
    if (!Valid(device)) {
        return Invalid("aclrtGetPrimaryCtxState", device);
    }
    if (flags != nullptr) {
        *flags = 0;
    }
    *active = 1;
    return ACL_SUCCESS;
}

// $ASCEND_DEVICE_SIM_SOC makes it another kind of NPU.
const char* aclrtGetSocName() {
    const char* name = std::getenv("ASCEND_DEVICE_SIM_SOC");
    return name == nullptr ? kSocName : name;
}

aclError aclGetDeviceCapability(uint32_t device, aclDeviceInfo info, int64_t* value) {
    const char* function = "aclGetDeviceCapability";
    if (!Valid(device)) {
        return Invalid(function, device);
    }
    switch (info) {
        case ACL_DEVICE_INFO_AI_CORE_NUM:
            *value = kCubeCores;
            return ACL_SUCCESS;
        case ACL_DEVICE_INFO_VECTOR_CORE_NUM:
            *value = VectorCores();
            return ACL_SUCCESS;
        case ACL_DEVICE_INFO_L2_SIZE:
            *value = kL2Bytes;
            return ACL_SUCCESS;
        default:
            return Fail(ACL_ERROR_INVALID_PARAM, function, "attribute %d is not known", static_cast<int>(info));
    }
}

aclError aclrtGetDeviceInfo(uint32_t device, aclrtDevAttr attribute, int64_t* value) {
    const char* function = "aclrtGetDeviceInfo";
    if (!Valid(device)) {
        return Invalid(function, device);
    }
    switch (attribute) {
        case ACL_DEV_ATTR_AICORE_CORE_NUM:
        case ACL_DEV_ATTR_CUBE_CORE_NUM:
            *value = kCubeCores;
            return ACL_SUCCESS;
        case ACL_DEV_ATTR_VECTOR_CORE_NUM:
            *value = VectorCores();
            return ACL_SUCCESS;
        case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
            *value = kDeviceBytes;
            return ACL_SUCCESS;
        case ACL_DEV_ATTR_L2_CACHE_SIZE:
            *value = kL2Bytes;
            return ACL_SUCCESS;
        default:
            return Fail(ACL_ERROR_RT_PARAM_INVALID, function, "attribute %d is not known", static_cast<int>(attribute));
    }
}

aclError aclrtDeviceCanAccessPeer(int32_t* can_access, int32_t device, int32_t peer) {
    if (!Valid(device) || !Valid(peer)) {
        return Invalid("aclrtDeviceCanAccessPeer", Valid(device) ? peer : device);
    }
    *can_access = device != peer;
    return ACL_SUCCESS;
}

aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t) {
    if (!Valid(peer) || current_device < 0) {
        return Invalid("aclrtDeviceEnablePeerAccess", peer);
    }
    peer_access[current_device][peer] = true;
    return ACL_SUCCESS;
}

aclError aclsysGetCANNVersion(aclCANNPackageName, aclCANNPackageVersion* version) {
    memset(version, 0, sizeof *version);
    strncpy(version->version, kCannVersion, sizeof version->version - 1);
    return ACL_SUCCESS;
}

// Numeric and scheduling settings that change nothing here.
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode) { return ACL_SUCCESS; }
aclError aclrtSetOpExecuteTimeOut(uint32_t) { return ACL_SUCCESS; }
aclError aclrtSetOpWaitTimeout(uint32_t) { return ACL_SUCCESS; }
aclError aclSetCompileopt(aclCompileOpt, const char*) { return ACL_SUCCESS; }

size_t aclGetCompileoptSize(aclCompileOpt) { return 1; }

aclError aclGetCompileopt(aclCompileOpt, char* value, size_t length) {
    memset(value, 0, length);
    return ACL_SUCCESS;
}

aclError aclrtSetSysParamOpt(aclSysParamOpt option, int64_t value) {
    if (!KnownOption(option)) {
        return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetSysParamOpt", "option %d is not known",
                    static_cast<int>(option));
    }
    system_options[option] = value;
    return ACL_SUCCESS;
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt option, int64_t value) { return aclrtSetSysParamOpt(option, value); }

aclError aclrtGetSysParamOpt(aclSysParamOpt option, int64_t* value) {
    if (!KnownOption(option)) {
        return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetSysParamOpt", "option %d is not known",
                    static_cast<int>(option));
    }
    *value = system_options[option];
    return ACL_SUCCESS;
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return ACL_SUCCESS; }
aclError aclrtGetLastError(aclrtLastErrLevel) { return ACL_SUCCESS; }

void aclAppLog(aclLogLevel, const char*, const char*, uint32_t, const char*, ...) {}

}  // extern "C"
