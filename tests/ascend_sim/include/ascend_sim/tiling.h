// What an operator project gives its kernels: a struct in global memory, and a key that chooses the branch. Both are known
// when the toolkit compiles; here the struct is the one that the kernel registers, or the one that a header included before
// the kernel calls AscendSimTiling, and the key is what ascend_sim_set_tiling_key was told.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ascend_sim/sync.h"

namespace ascend_sim {

uint64_t TilingKey();

template <class T>
T ReadTiling(const uint8_t* address, CallSite site = CallSite::Here()) {
    static_assert(std::is_trivially_copyable_v<T>, "a tiling struct is copied byte by byte");
    T value;
    const Call call{"GET_TILING_DATA", site};
    std::memcpy(static_cast<void*>(&value), ScalarGmRead(call, reinterpret_cast<uint64_t>(address), sizeof(T)),
                sizeof(T));
    return value;
}

}  // namespace ascend_sim

#define REGISTER_TILING_DEFAULT(tiling_struct) using AscendSimTiling [[maybe_unused]] = tiling_struct
#define GET_TILING_DATA_WITH_STRUCT(tiling_struct, name, address) \
    tiling_struct name = ascend_sim::ReadTiling<tiling_struct>(address)
#define GET_TILING_DATA(name, address) GET_TILING_DATA_WITH_STRUCT(AscendSimTiling, name, address)
#define GET_TILING_DATA_MEMBER(tiling_struct, member, name, address) \
    auto name = ascend_sim::ReadTiling<tiling_struct>(address).member

#define TILING_KEY_VAR ascend_sim::TilingKey()
#define TILING_KEY_IS(key) (ascend_sim::TilingKey() == static_cast<uint64_t>(key))

inline void KERNEL_TASK_TYPE(uint64_t key, ascend_sim::KernelType type) {
    if (ascend_sim::TilingKey() == key) {
        ascend_sim::SetKernelType(type);
    }
}

namespace AscendC {

// The library's own part of a workspace comes first on the device; here it has no size.
inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }
inline void SetSysWorkspace(GM_ADDR) {}
inline GM_ADDR GetSysWorkSpacePtr() { return nullptr; }

}  // namespace AscendC
