// Functions that libtorch_npu.so needs to load and that the simulated device does not have.
#include <acl/acl.h>
#include <acl/acl_dump.h>
#include <profiling/aprof_pub.h>

#include "report.h"

using device_sim::Refuse;

extern "C" {

aclError aclmdlInitDump() { return Refuse("aclmdlInitDump"); }
aclError aclmdlSetDump(const char*) { return Refuse("aclmdlSetDump"); }
aclError aclmdlFinalizeDump() { return Refuse("aclmdlFinalizeDump"); }

aclError aclrtBinaryGetFunction(const aclrtBinHandle, const char*, aclrtFuncHandle*) {
    return Refuse("aclrtBinaryGetFunction");
}
aclError aclrtBinaryLoadFromData(const void*, size_t, const aclrtBinaryLoadOptions*, aclrtBinHandle*) {
    return Refuse("aclrtBinaryLoadFromData");
}
aclError aclrtGetFunctionAddr(aclrtFuncHandle, void**, void**) { return Refuse("aclrtGetFunctionAddr"); }

aclError aclrtDeviceGetBareTgid(int32_t*) { return Refuse("aclrtDeviceGetBareTgid"); }
aclError aclrtMallocPhysical(aclrtDrvMemHandle*, size_t, const aclrtPhysicalMemProp*, uint64_t) {
    return Refuse("aclrtMallocPhysical");
}
aclError aclrtFreePhysical(aclrtDrvMemHandle) { return Refuse("aclrtFreePhysical"); }
aclError aclrtReserveMemAddress(void**, size_t, size_t, void*, uint64_t) { return Refuse("aclrtReserveMemAddress"); }
aclError aclrtReleaseMemAddress(void*) { return Refuse("aclrtReleaseMemAddress"); }
aclError aclrtMapMem(void*, size_t, size_t, aclrtDrvMemHandle, uint64_t) { return Refuse("aclrtMapMem"); }
aclError aclrtUnmapMem(void*) { return Refuse("aclrtUnmapMem"); }
aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle, aclrtMemHandleType, uint64_t, uint64_t*) {
    return Refuse("aclrtMemExportToShareableHandle");
}
aclError aclrtMemImportFromShareableHandle(uint64_t, int32_t, aclrtDrvMemHandle*) {
    return Refuse("aclrtMemImportFromShareableHandle");
}
aclError aclrtMemSetPidToShareableHandle(uint64_t, int32_t*, size_t) {
    return Refuse("aclrtMemSetPidToShareableHandle");
}

aclError aclrtProcessReport(int32_t) { return Refuse("aclrtProcessReport"); }
aclError aclrtResetEvent(aclrtEvent, aclrtStream) { return Refuse("aclrtResetEvent"); }

int32_t MsprofRegisterCallback(uint32_t, ProfCommandHandle) { return Refuse("MsprofRegisterCallback"); }
int32_t MsprofReportApi(uint32_t, const MsprofApi*) { return Refuse("MsprofReportApi"); }
int32_t MsprofReportCompactInfo(uint32_t, const VOID_PTR, uint32_t) { return Refuse("MsprofReportCompactInfo"); }
int32_t MsprofReportAdditionalInfo(uint32_t, const VOID_PTR, uint32_t) { return Refuse("MsprofReportAdditionalInfo"); }
uint64_t MsprofGetHashId(const char*, size_t) { return Refuse("MsprofGetHashId"), 0; }
uint64_t MsprofSysCycleTime() { return Refuse("MsprofSysCycleTime"), 0; }

// No header of the wheel declares these four; only their names matter to the loader.
int32_t rtDevBinaryRegister(const void*, void**) { return Refuse("rtDevBinaryRegister"); }
int32_t rtFunctionRegister(void*, const void*, const char*, const void*, uint32_t) {
    return Refuse("rtFunctionRegister");
}
int32_t rtGetC2cCtrlAddr(uint64_t*, uint32_t*) { return Refuse("rtGetC2cCtrlAddr"); }
int32_t rtKernelLaunch(const void*, uint32_t, void*, uint32_t, void*, void*) { return Refuse("rtKernelLaunch"); }

}  // extern "C"
