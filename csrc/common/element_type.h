// Element types of RoPE tables and features, as launch parameters name them.
#pragma once

#include "common/portable.h"

namespace dsv4 {

constexpr int32_t kFloat32 = 0;
constexpr int32_t kFloat16 = 1;
constexpr int32_t kBFloat16 = 2;

DSV4_HOST_DEVICE constexpr int32_t element_bytes(int32_t type) {
    return type == kFloat32 ? 4 : 2;
}

}  // namespace dsv4
