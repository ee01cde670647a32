// Neither the arguments nor the code of a launch are in a cache when a block begins. Asked for at once, they come while
// the block waits for its inputs; read one after the other, each line is waited for.
#pragma once

#include "kernel_operator.h"

namespace dsv4::kernel {

// First in a kernel. argument_bytes: of all its arguments, which lie one behind the other where the parameter base
// says. code_units: of 2 KB, how many its code fills, at most 7; 0 for code that does not fit, of which the hardware's
// own prefetching sees to the right part.
__aicore__ inline void preload_launch(uint64_t argument_bytes, int64_t code_units) {
    constexpr uint64_t kLineBytes = 64;
    if (code_units != 0) {
        AscendC::ICachePreLoad(code_units);
    }
    AscendC::GlobalTensor<uint64_t> arguments;
    arguments.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(get_para_base()), argument_bytes / sizeof(uint64_t));
    for (uint64_t byte = 0; byte < argument_bytes; byte += kLineBytes) {
        AscendC::DataCachePreload(arguments, static_cast<int64_t>(byte));
    }
}

}  // namespace dsv4::kernel
