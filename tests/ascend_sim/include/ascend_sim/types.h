// Qualifiers, positions, pipes and modes, with the names and values that kernels use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

// generate_stubs.py defines them as themselves, to find kernels in what the preprocessor makes of a source.
#ifndef __global__
#define __global__
#define __aicore__
#define __gm__
#define GM_ADDR __gm__ uint8_t*
#endif
#define __ubuf__
#define __inout_pipe__(...)

// The device that is simulated, unless the build says that it compiles for another.
#ifndef __NPU_ARCH__
#define __NPU_ARCH__ 2201
#endif
#ifndef __CCE_AICORE__
#define __CCE_AICORE__ (__NPU_ARCH__ == 3510 ? 310 : 220)
#endif

enum pipe_t { PIPE_S = 0, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL };

enum event_t { EVENT_ID0 = 0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

namespace AscendC {

using TEventID = int8_t;

enum class TPosition : uint8_t { GM, VECIN, VECOUT, VECCALC };
using QuePosition = TPosition;

// The events an AIV kernel can raise. V_V is a plain vector barrier on this chip.
enum class HardEvent : uint8_t {
    MTE2_V,
    V_MTE2,
    MTE3_V,
    V_MTE3,
    V_V,
    MTE2_MTE3,
    MTE3_MTE2,
    S_V,
    V_S,
    S_MTE2,
    MTE2_S,
    S_MTE3,
    MTE3_S,
};

enum class RoundMode : uint8_t {
    CAST_NONE = 0,
    CAST_RINT,
    CAST_FLOOR,
    CAST_CEIL,
    CAST_ROUND,
    CAST_TRUNC,
    CAST_ODD,
};

enum class CMPMODE : uint8_t { LT = 0, GT, EQ, LE, GE, NE };

enum class SELMODE : uint8_t { VSEL_CMPMASK_SPR = 0, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };

enum class MaskMode : uint8_t { NORMAL = 0, COUNTER };

enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX = 0, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };

enum class CacheLine : uint64_t { SINGLE_CACHE_LINE = 0, ENTIRE_DATA_CACHE };
enum class DcciDst : uint64_t { CACHELINE_ALL = 0, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };
enum class MemDsbT : uint8_t { ALL = 0, DDR, UB, SEQ };
enum class CacheMode : uint8_t { CACHE_MODE_DISABLE = 0, CACHE_MODE_NORMAL, CACHE_MODE_LAST, CACHE_MODE_PERSISTENT };

constexpr int32_t TOTAL_UB_SIZE = 192 * 1024;         // bytes
constexpr int32_t TOTAL_VEC_LOCAL_SIZE = 184 * 1024;  // bytes a TPipe may hand out
constexpr int32_t TMP_UB_OFFSET = 184 * 1024;         // bytes
constexpr int32_t TMP_UB_SIZE = 8 * 1024;             // bytes
constexpr int32_t ONE_BLK_SIZE = 32;                  // bytes
constexpr int32_t ONE_REPEAT_BYTE_SIZE = 256;         // bytes
constexpr int32_t DEFAULT_BLK_NUM = 8;                // of a repeat
constexpr int32_t DEFAULT_BLK_STRIDE = 1;             // blocks
constexpr uint8_t DEFAULT_REPEAT_STRIDE = 8;          // blocks
constexpr int32_t MAX_REPEAT_TIMES = 255;
constexpr uint64_t MASK_PLACEHOLDER = 0;

}  // namespace AscendC

namespace ascend_sim {

enum class KernelType : uint8_t { Unset, AivOnly, MixAiv10 };

template <class T, class... Allowed>
inline constexpr bool kOneOf = (std::is_same_v<T, Allowed> || ...);

}  // namespace ascend_sim
