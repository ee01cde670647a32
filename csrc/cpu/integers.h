// Tensors of int32 or int64 by their addresses: asking a tensor at every entry costs more than the entry.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dsv4::cpu {

// Reads; an undefined tensor has no entries.
struct IntegerInput {
    const void* entries;
    bool is_int64;

    explicit IntegerInput(const at::Tensor& values)
        : entries(values.defined() ? values.const_data_ptr() : nullptr),
          is_int64(values.defined() && values.scalar_type() == at::kLong) {}

    int64_t operator[](int64_t index) const {
        return is_int64 ? static_cast<const int64_t*>(entries)[index] : static_cast<const int32_t*>(entries)[index];
    }
};

// Writes, unless the tensor is undefined.
struct IntegerOutput {
    void* entries;
    bool is_int64;

    explicit IntegerOutput(const at::Tensor& values)
        : entries(values.defined() ? values.mutable_data_ptr() : nullptr),
          is_int64(values.defined() && values.scalar_type() == at::kLong) {}

    // value_of(0), value_of(1), ..
    template <typename ValueOf>
    void write(int64_t count, const ValueOf& value_of) const {
        if (entries == nullptr) {
            return;
        }
        for (int64_t i = 0; i < count; ++i) {
            if (is_int64) {
                static_cast<int64_t*>(entries)[i] = value_of(i);
            } else {
                static_cast<int32_t*>(entries)[i] = static_cast<int32_t>(value_of(i));
            }
        }
    }
};

}  // namespace dsv4::cpu
