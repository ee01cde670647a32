// Who is calling: every simulated API takes a defaulted CallSite, so that an error names a line of the kernel.
#pragma once

#include <cstdint>

namespace ascend_sim {

struct CallSite {
    const char* file;
    int line;

    static constexpr CallSite Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return CallSite{file, line};
    }
};

struct Call {
    const char* name;  // the API as the kernel spells it
    CallSite site;
};

}  // namespace ascend_sim
