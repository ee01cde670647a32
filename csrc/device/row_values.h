// Inputs with one int32 or int64 value a row, read in chunks into UB.
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
        words_ = buffer;
        values_ = values;
        num_rows_ = static_cast<uint64_t>(num_rows);
    }

    // The caller orders MTE2 and S around the copy.
    __aicore__ inline void load_chunk(int64_t first_row, uint32_t rows) {
        if (is_int64_) {
            load(wide(), global<int64_t>(values_, num_rows_)[first_row], rows);
        } else {
            load(words_, global<int32_t>(values_, num_rows_)[first_row], rows);
        }
    }

    __aicore__ inline bool is_int64() const { return is_int64_; }

    // Of the chunk; an int64 is its low word, then the high one.
    __aicore__ inline const LocalTensor<int32_t>& words() const { return words_; }

    __aicore__ inline int64_t get(uint32_t chunk_row) const {
        return is_int64_ ? wide().GetValue(chunk_row) : static_cast<int64_t>(words_.GetValue(chunk_row));
    }

    __aicore__ inline void set(uint32_t chunk_row, int64_t value) const {
        if (is_int64_) {
            wide().SetValue(chunk_row, value);
        } else {
            words_.SetValue(chunk_row, static_cast<int32_t>(value));
        }
    }

  private:
    __aicore__ inline LocalTensor<int64_t> wide() const { return words_.ReinterpretCast<int64_t>(); }

    bool is_int64_ = false;
    GM_ADDR values_ = nullptr;
    uint64_t num_rows_ = 0;
    LocalTensor<int32_t> words_;
};

}  // namespace dsv4::kernel
