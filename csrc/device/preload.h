// Neither the arguments nor the code of a launch are in a cache when a block begins. Asked for at once, they come while
// the block does something else; read one after the other, each line is waited for.
#pragma once

#include "common/launch_plan.h"
#include "kernel_operator.h"

namespace dsv4::kernel {

// First in a kernel. argument_bytes: of all its arguments, which lie one behind the other where the parameter base
// says. code_units: of 2 KB, how many its code fills, at most 7; 0 for code that does not fit, of which the hardware's
// own prefetching sees to the right part.
__aicore__ inline void preload_launch(uint64_t argument_bytes, int64_t code_units) {
    // No more lines of 64 bytes than may be on their way at a time: what is asked for beyond them is not fetched.
    constexpr uint64_t kLineBytes = 64;
    constexpr uint64_t kLines = 4;
    if (code_units != 0) {
        AscendC::ICachePreLoad(code_units);
    }
    AscendC::GlobalTensor<uint64_t> arguments;
    arguments.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(get_para_base()), argument_bytes / sizeof(uint64_t));
    for (uint64_t byte = 0; byte < min_of(argument_bytes, kLines * kLineBytes); byte += kLineBytes) {
        AscendC::DataCachePreload(arguments, static_cast<int64_t>(byte));
    }
}

}  // namespace dsv4::kernel
