#include "report.h"

#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

namespace device_sim {
namespace {

struct Records {
    std::mutex mutex;
    std::map<std::string, uint64_t> counters;
    std::vector<std::string> errors;
};

// Never destroyed: torch_npu calls in from threads and destructors that outlive static destruction.
Records& records() {
    static auto* instance = new Records;
    return *instance;
}

thread_local std::string recent_message;

}  // namespace

void Count(const std::string& name, uint64_t amount) {
    std::lock_guard lock(records().mutex);
    records().counters[name] += amount;
}

aclError Fail(aclError code, const char* function, const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    recent_message =
        std::string("simulated device: ") + function + ": " + text + " (error " + std::to_string(code) + ")";
    std::lock_guard lock(records().mutex);
    records().errors.push_back(recent_message);
    return code;
}

aclError Refuse(const char* function) {
    Count(std::string("refused.") + function);
    return Fail(ACL_ERROR_API_NOT_SUPPORT, function, "not implemented");
}

std::string CountersText() {
    std::lock_guard lock(records().mutex);
    std::string text;
    for (const auto& [name, value] : records().counters) {
        text += name + "\t" + std::to_string(value) + "\n";
    }
    return text;
}

std::string ErrorsText() {
    std::lock_guard lock(records().mutex);
    std::string text;
    for (const auto& error : records().errors) {
        text += error + "\n";
    }
    return text;
}

void ResetCounters() {
    std::lock_guard lock(records().mutex);
    records().counters.clear();
}

void ResetErrors() {
    std::lock_guard lock(records().mutex);
    records().errors.clear();
    recent_message.clear();
}

}  // namespace device_sim

extern "C" const char* aclGetRecentErrMsg() { return device_sim::recent_message.c_str(); }
