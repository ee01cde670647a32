#include "call_chain.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "report.h"

namespace ascend_sim {

namespace {

constexpr int kMaxFrames = 48;
constexpr size_t kMaxLines = 8;

const char* ModuleOf(const void* address) {
    Dl_info info;
    return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// Lines of all functions inlined at these addresses of one library.
std::vector<std::string> LinesAt(const std::string& module, const std::string& offsets) {
    std::vector<std::string> lines;
    if (module.find('\'') != std::string::npos) {
        return lines;
    }
    const std::string command = "addr2line -i -e '" + module + "'" + offsets + " 2>/dev/null";
    const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), &pclose);
    char line[1024];
    while (output != nullptr && std::fgets(line, sizeof(line), output.get()) != nullptr) {
        lines.emplace_back(line);
    }
    return lines;
}

// "folder/file.cpp:12 (discriminator 3)\n" -> "file.cpp:12"; empty for the simulator's own headers and unknown places.
std::string Shortened(const std::string& line) {
    if (line.find("??") != std::string::npos || line.find("ascend_sim/include/") != std::string::npos ||
        line.find("launch_stubs.cpp") != std::string::npos) {
        return "";
    }
    const size_t slash = line.rfind('/');
    const size_t from = slash == std::string::npos ? 0 : slash + 1;
    return line.substr(from, line.find_first_of(" \n", from) - from);
}

}  // namespace

std::string KernelCallChain() {
    void* frames[kMaxFrames];
    const int count = backtrace(frames, kMaxFrames);
    const std::string own = ModuleOf(reinterpret_cast<const void*>(&KernelCallChain));
    std::string module;
    std::string offsets;
    for (int i = 0; i < count; ++i) {
        Dl_info info;
        if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr || own == info.dli_fname) {
            if (!module.empty()) {
                break;  // back in the simulator: the kernel's frames are behind us
            }
            continue;
        }
        if (!module.empty() && module != info.dli_fname) {
            break;
        }
        module = info.dli_fname;
        // A return address points behind its call.
        const auto offset = reinterpret_cast<uintptr_t>(frames[i]) - reinterpret_cast<uintptr_t>(info.dli_fbase) - 1;
        offsets += Format(" 0x%llx", static_cast<unsigned long long>(offset));
    }
    // Looking lines up takes long; the same places come again and again.
    static std::unordered_map<std::string, std::string> known;
    const auto seen = known.find(module + offsets);
    if (seen != known.end()) {
        return seen->second;
    }
    std::string chain;
    size_t found = 0;
    std::string previous;
    for (const std::string& line : module.empty() ? std::vector<std::string>{} : LinesAt(module, offsets)) {
        const std::string place = Shortened(line);
        if (place.empty() || place == previous || found == kMaxLines) {
            continue;
        }
        chain += (chain.empty() ? "" : ", ") + place;
        previous = place;
        ++found;
    }
    known.emplace(module + offsets, chain);
    return chain;
}

}  // namespace ascend_sim
