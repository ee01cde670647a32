// Counters, recorded errors and the text that aclGetRecentErrMsg returns.
#pragma once

#include <acl/acl.h>

#include <cstdint>
#include <string>

namespace device_sim {

void Count(const std::string& name, uint64_t amount = 1);

// Records the error and makes it the thread's most recent message. Returns `code`, so callers write `return Fail(...)`.
aclError Fail(aclError code, const char* function, const char* format, ...) __attribute__((format(printf, 3, 4)));

// An ACL function that exists only so that torch_npu loads.
aclError Refuse(const char* function);

std::string CountersText();
std::string ErrorsText();
void ResetCounters();
void ResetErrors();

}  // namespace device_sim
