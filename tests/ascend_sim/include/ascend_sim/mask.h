// Mask modes and the mask arguments of the repeat forms.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ascend_sim/lanes.h"

namespace AscendC {

namespace detail {

// A mask argument: a number of leading lanes, or a bit array.
template <class M>
inline constexpr bool kIsMask = std::is_integral_v<M> || std::is_same_v<std::decay_t<M>, uint64_t*> ||
                                std::is_same_v<std::decay_t<M>, const uint64_t*>;

template <class T, class Mask>
ascend_sim::Lanes LanesOf(const Call& call, const Mask& mask, uint32_t repeat, bool set_mask) {
    if constexpr (std::is_integral_v<Mask>) {
        return ascend_sim::MaskedLanes(call, static_cast<uint64_t>(mask), repeat, sizeof(T), set_mask);
    } else {
        return ascend_sim::MaskedLanes(call, static_cast<const uint64_t*>(mask), repeat, sizeof(T), set_mask);
    }
}

}  // namespace detail

inline void SetMaskCount(CallSite site = CallSite::Here()) {
    ascend_sim::SetMaskMode(Call{"SetMaskCount", site}, true);
}
inline void SetMaskNorm(CallSite site = CallSite::Here()) { ascend_sim::SetMaskMode(Call{"SetMaskNorm", site}, false); }
inline void ResetMask(CallSite site = CallSite::Here()) { ascend_sim::ResetVectorMask(Call{"ResetMask", site}); }
template <class T, MaskMode Mode = MaskMode::NORMAL>
void SetVectorMask(const uint64_t maskHigh, const uint64_t maskLow, CallSite site = CallSite::Here()) {
    ascend_sim::SetVectorMaskState(Call{"SetVectorMask", site}, maskHigh, maskLow);
}
// len: leading lanes of a repeat (NORMAL) or elements (COUNTER).
template <class T, MaskMode Mode = MaskMode::NORMAL>
void SetVectorMask(int32_t len, CallSite site = CallSite::Here()) {
    const Call call{"SetVectorMask", site};
    if constexpr (Mode == MaskMode::COUNTER) {
        ascend_sim::SetVectorMaskState(call, 0, static_cast<uint64_t>(len));
    } else {
        const ascend_sim::Lanes lanes = ascend_sim::MaskedLanes(call, static_cast<uint64_t>(len), 1, sizeof(T), true);
        ascend_sim::SetVectorMaskState(call, lanes.mask[1], lanes.mask[0]);
    }
}

}  // namespace AscendC
