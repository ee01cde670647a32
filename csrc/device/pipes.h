// Order between the pipes of a core, for kernels that own their buffers (TBuf): every edge is written out.
#pragma once

#include "kernel_operator.h"

namespace dsv4::kernel {

// What the second pipe of `edge` is given from here on starts after the first has finished what it was given before.
template <AscendC::HardEvent edge>
__aicore__ inline void order() {
    AscendC::SetFlag<edge>(EVENT_ID0);
    AscendC::WaitFlag<edge>(EVENT_ID0);
}

}  // namespace dsv4::kernel
