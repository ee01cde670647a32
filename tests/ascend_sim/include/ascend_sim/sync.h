// Flags, barriers, block indices, kernel type, cache control.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ascend_sim/pool.h"
#include "ascend_sim/tensor.h"

namespace ascend_sim {

int64_t BlockIndex();
int64_t BlockCount();
void SetKernelType(KernelType type);
void SyncAllBlocks(const Call& call);
void SyncAllBlocksByMemory(const Call& call, const GmView& workspace, const UbView& scratch);
int64_t SystemCycle();

}  // namespace ascend_sim

namespace AscendC {

template <HardEvent E>
void SetFlag(int32_t id, CallSite site = CallSite::Here()) {
    ascend_sim::SetFlag(Call{"SetFlag", site}, E, id);
}
template <HardEvent E>
void WaitFlag(int32_t id, CallSite site = CallSite::Here()) {
    ascend_sim::WaitFlag(Call{"WaitFlag", site}, E, id);
}

template <pipe_t P>
void PipeBarrier(CallSite site = CallSite::Here()) {
    static_assert(P != PIPE_S, "PIPE_S is in order already; the device does not support a barrier on it");
    ascend_sim::PipeBarrier(Call{"PipeBarrier", site}, P);
}

inline int64_t GetBlockIdx() { return ascend_sim::BlockIndex(); }
inline int64_t GetBlockNum() { return ascend_sim::BlockCount(); }
inline int64_t GetSubBlockIdx() { return 0; }
inline int64_t GetSubBlockNum() { return 1; }
inline int64_t GetTaskRation() { return 1; }
inline int64_t GetTaskRatio() { return 1; }
inline int64_t GetSystemCycle() { return ascend_sim::SystemCycle(); }

// isAIVOnly = false also meets the cube cores, which are not simulated.
template <bool isAIVOnly = true>
void SyncAll(CallSite site = CallSite::Here()) {
    static_assert(isAIVOnly, "SyncAll: only vector cores are simulated");
    ascend_sim::SyncAllBlocks(Call{"SyncAll", site});
}
// workspace, scratch: zeroed, 32 bytes a block each.
template <bool isAIVOnly = true>
void SyncAll(const GlobalTensor<int32_t>& workspace, const LocalTensor<int32_t>& scratch,
             CallSite site = CallSite::Here()) {
    static_assert(isAIVOnly, "SyncAll: only vector cores are simulated");
    ascend_sim::SyncAllBlocksByMemory(Call{"SyncAll", site}, workspace.view(), scratch.view());
}

template <class T, CacheLine Line, DcciDst Dst = DcciDst::CACHELINE_OUT>
void DataCacheCleanAndInvalid(const GlobalTensor<T>& tensor, CallSite site = CallSite::Here()) {
    ascend_sim::DataCacheCleanAndInvalidate(Call{"DataCacheCleanAndInvalid", site}, tensor.view().address,
                                            Line == CacheLine::ENTIRE_DATA_CACHE);
}

// The scalar unit finishes its memory accesses first: in this model they are immediate.
template <MemDsbT Scope>
void DataSyncBarrier() {}

// Of the line that holds byte `offset` of the tensor; of so many units of 2 KB of code from the call on.
template <class T>
void DataCachePreload(const GlobalTensor<uint64_t>& tensor, const T offset, CallSite site = CallSite::Here()) {
    static_assert(std::is_same_v<T, int16_t> || std::is_same_v<T, int64_t>, "the offset is an int16_t or an int64_t");
    ascend_sim::DataCachePreload(Call{"DataCachePreload", site},
                                 tensor.view().address + static_cast<uint64_t>(int64_t{offset}));
}
inline void ICachePreLoad(const int64_t units, CallSite site = CallSite::Here()) {
    ascend_sim::CodePreload(Call{"ICachePreLoad", site}, units);
}

}  // namespace AscendC

// Named like the macros that the toolkit's pre-compile pass looks for.
constexpr ascend_sim::KernelType KERNEL_TYPE_AIV_ONLY = ascend_sim::KernelType::AivOnly;
constexpr ascend_sim::KernelType KERNEL_TYPE_MIX_AIV_1_0 = ascend_sim::KernelType::MixAiv10;
inline void KERNEL_TASK_TYPE_DEFAULT(ascend_sim::KernelType type) { ascend_sim::SetKernelType(type); }

#define ASCEND_IS_AIV constexpr(true)
#define ASCEND_IS_AIC constexpr(false)

// What the calls above are made of, as older kernels spell it.
inline void pipe_barrier(pipe_t pipe, ascend_sim::CallSite site = ascend_sim::CallSite::Here()) {
    ascend_sim::PipeBarrier(ascend_sim::Call{"pipe_barrier", site}, pipe);
}
inline void set_flag(pipe_t from, pipe_t to, int32_t id, ascend_sim::CallSite site = ascend_sim::CallSite::Here()) {
    const ascend_sim::Call call{"set_flag", site};
    ascend_sim::SetFlag(call, ascend_sim::EventBetween(call, from, to), id);
}
inline void wait_flag(pipe_t from, pipe_t to, int32_t id, ascend_sim::CallSite site = ascend_sim::CallSite::Here()) {
    const ascend_sim::Call call{"wait_flag", site};
    ascend_sim::WaitFlag(call, ascend_sim::EventBetween(call, from, to), id);
}
inline int64_t get_block_idx() { return ascend_sim::BlockIndex(); }
inline int64_t get_block_num() { return ascend_sim::BlockCount(); }
inline int64_t get_para_base() { return static_cast<int64_t>(ascend_sim::ArgumentBase()); }

namespace AscendC {

// Flags between two pipes, as an object.
template <pipe_t Source, pipe_t Target>
class TQueSync {
  public:
    void SetFlag(TEventID id, CallSite site = CallSite::Here()) { set_flag(Source, Target, id, site); }
    void WaitFlag(TEventID id, CallSite site = CallSite::Here()) { wait_flag(Source, Target, id, site); }
};

}  // namespace AscendC
