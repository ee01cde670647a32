// Inputs and outputs with one int32 or int64 value a row, moved in chunks through UB.
#pragma once

#include "device/memory.h"
#include "device/pipes.h"

namespace dsv4::kernel {

class RowValues {
  public:
    // buffer: room for the values of a chunk as int64.
    __aicore__ inline void init(GM_ADDR values, int64_t num_rows, int32_t is_int64,
                                const LocalTensor<int32_t>& buffer) {
        is_int64_ = is_int64 != 0;
        narrow_ = buffer;
        wide_ = buffer.ReinterpretCast<int64_t>();
        narrow_values_ = global<int32_t>(values, static_cast<uint64_t>(num_rows));
        wide_values_ = global<int64_t>(values, static_cast<uint64_t>(num_rows));
    }

    // The caller orders MTE2 and S around the copy.
    __aicore__ inline void load_chunk(int64_t first_row, uint32_t rows) {
        if (is_int64_) {
            load(wide_, wide_values_[first_row], rows);
        } else {
            load(narrow_, narrow_values_[first_row], rows);
        }
    }

    // The caller orders S and MTE3 around the copy.
    __aicore__ inline void store_chunk(int64_t first_row, uint32_t rows) const {
        if (is_int64_) {
            store(wide_values_[first_row], wide_, rows);
        } else {
            store(narrow_values_[first_row], narrow_, rows);
        }
    }

    __aicore__ inline bool is_int64() const { return is_int64_; }

    // Of the chunk; an int64 is its low word, then the high one.
    __aicore__ inline const LocalTensor<int32_t>& words() const { return narrow_; }

    __aicore__ inline int64_t get(uint32_t chunk_row) const {
        return is_int64_ ? wide_.GetValue(chunk_row) : static_cast<int64_t>(narrow_.GetValue(chunk_row));
    }

    __aicore__ inline void set(uint32_t chunk_row, int64_t value) const {
        if (is_int64_) {
            wide_.SetValue(chunk_row, value);
        } else {
            narrow_.SetValue(chunk_row, static_cast<int32_t>(value));
        }
    }

  private:
    bool is_int64_ = false;
    LocalTensor<int32_t> narrow_;
    LocalTensor<int64_t> wide_;
    GlobalTensor<int32_t> narrow_values_;
    GlobalTensor<int64_t> wide_values_;
};

}  // namespace dsv4::kernel
