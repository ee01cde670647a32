// Which device a host thread is on, and the handles that ACL calls pass.
#pragma once

#include <acl/acl.h>

#include <memory>

#include "scheduler.h"

namespace device_sim {

// -1 before the thread's first aclrtSetDevice.
int32_t CurrentDevice();
aclError SetCurrentDevice(const char* function, int32_t device);

// Whether tasks of `device` may use memory of `peer`.
bool PeerAccess(int32_t device, int32_t peer);

// The stream of a handle for a call that puts work on it: an error unless the stream is one of the current device.
aclError StreamForWork(const char* function, aclrtStream handle, std::shared_ptr<Stream>* stream);
// The same without the device check: waiting for and asking about a stream works from anywhere.
aclError StreamForHost(const char* function, aclrtStream handle, std::shared_ptr<Stream>* stream);
aclError EventForHandle(const char* function, aclrtEvent handle, Event** event);

}  // namespace device_sim
