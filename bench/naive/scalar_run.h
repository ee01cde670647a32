// How the naive kernels move data: the scalar unit reads an element from global memory, puts it into UB, and a copy stores
// what has been collected. The obvious way to write these ops, kept here to be counted against the real kernels.
#pragma once

#include "device/memory.h"
#include "device/pipes.h"

namespace dsv4::naive {

using kernel::global;

// Consecutive elements of one output.
template <typename T>
class ScalarRun {
  public:
    __aicore__ inline explicit ScalarRun(AscendC::TPipe* pipe) {
        pipe->InitBuffer(buffer_, kElems * sizeof(T));
        tile_ = buffer_.template Get<T>();
    }

    __aicore__ inline void begin(GM_ADDR out, int64_t first) {
        out_ = reinterpret_cast<GM_ADDR>(reinterpret_cast<__gm__ T*>(out) + first);
        count_ = 0;
    }

    __aicore__ inline void push(T value) {
        if (count_ == kElems) {
            end();
        }
        tile_.SetValue(count_++, value);
    }

    __aicore__ inline void end() {
        if (count_ == 0) {
            return;
        }
        kernel::order<AscendC::HardEvent::S_MTE3>();
        kernel::store(global<T>(out_, count_), tile_, count_);
        kernel::order<AscendC::HardEvent::MTE3_S>();
        out_ = reinterpret_cast<GM_ADDR>(reinterpret_cast<__gm__ T*>(out_) + count_);
        count_ = 0;
    }

  private:
    static constexpr uint32_t kElems = 1024;

    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    AscendC::LocalTensor<T> tile_;
    GM_ADDR out_ = nullptr;
    uint32_t count_ = 0;
};

// One element of an array of `count` elements.
template <typename T>
__aicore__ inline T element(GM_ADDR array, int64_t count, int64_t index) {
    return global<T>(array, static_cast<uint64_t>(count)).GetValue(static_cast<uint64_t>(index));
}

__aicore__ inline int64_t integer(GM_ADDR array, int32_t is_int64, int64_t count, int64_t index) {
    return is_int64 != 0 ? element<int64_t>(array, count, index) : element<int32_t>(array, count, index);
}

}  // namespace dsv4::naive
