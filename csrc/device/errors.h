// A block's lane of the device's error words.
#pragma once

#include "common/device_error.h"
#include "device/memory.h"
#include "device/pipes.h"

namespace dsv4::kernel {

class ErrorLane {
 public:
    __aicore__ inline ErrorLane(AscendC::TPipe* pipe, GM_ADDR lanes, int32_t op) : op_(op) {
        pipe->InitBuffer(buffer_, kErrorLaneWords * sizeof(int32_t));
        lane_ = global<int32_t>(lanes, static_cast<uint64_t>(AscendC::GetBlockNum()) * kErrorLaneWords)
                    [static_cast<uint64_t>(AscendC::GetBlockIdx()) * kErrorLaneWords];
    }

    // Remembers the first bad value that the block meets.
    __aicore__ inline void report(int32_t code, int64_t index, int64_t value) {
        if (code_ == 0) {
            code_ = code;
            index_ = static_cast<int32_t>(index);
            value_ = static_cast<int32_t>(value);
        }
    }

    // Writes the lane if anything was reported; call once, at the end of the kernel.
    __aicore__ inline void flush() {
        if (code_ == 0) {
            return;
        }
        const LocalTensor<int32_t> words = buffer_.Get<int32_t>();
        for (int32_t word = 0; word < kErrorLaneWords; ++word) {
            words.SetValue(word, 0);
        }
        words.SetValue(kErrorOp, op_);
        words.SetValue(kErrorCode, code_);
        words.SetValue(kErrorIndex, index_);
        words.SetValue(kErrorValue, value_);
        order<AscendC::HardEvent::S_MTE3>();
        store(lane_, words, kErrorLaneWords);
    }

 private:
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    GlobalTensor<int32_t> lane_;
    int32_t op_;
    int32_t code_ = 0;
    int32_t index_ = 0;
    int32_t value_ = 0;
};

}  // namespace dsv4::kernel
