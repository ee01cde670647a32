#include "atomic.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ascend_sim/float16.h"
#include "block.h"

namespace ascend_sim {

namespace {

// Block::atomic packs mode and element kind; 0 is off.
AtomicMode ModeOf(int packed) { return static_cast<AtomicMode>(packed & 0xf); }
ElementKind KindOf(int packed) { return static_cast<ElementKind>(packed >> 4); }

float Wide(half value) { return float(value); }
float Wide(bfloat16_t value) { return AscendC::ToFloat(value); }
template <class T>
T Wide(T value) {
    return value;
}

template <class T>
T Combined(AtomicMode mode, T old, T given) {
    const auto a = Wide(old);
    const auto b = Wide(given);
    switch (mode) {
        case AtomicMode::Add:
            if constexpr (std::is_integral_v<T>) {
                return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                                      static_cast<std::make_unsigned_t<T>>(b));
            } else {
                return T(a + b);
            }
        case AtomicMode::Max:
            return a < b ? given : old;
        case AtomicMode::Min:
            return b < a ? given : old;
        case AtomicMode::None:
            break;
    }
    return given;
}

template <class T>
void CombineAll(AtomicMode mode, uint8_t* target, const uint8_t* source, uint32_t bytes) {
    for (uint32_t at = 0; at < bytes; at += sizeof(T)) {
        T old;
        T given;
        std::memcpy(&old, target + at, sizeof(T));
        std::memcpy(&given, source + at, sizeof(T));
        const T result = Combined(mode, old, given);
        std::memcpy(target + at, &result, sizeof(T));
    }
}

}  // namespace

void SetAtomic(const Call& call, AtomicMode mode, ElementKind kind) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    now.atomic = mode == AtomicMode::None ? 0 : static_cast<int>(mode) | static_cast<int>(kind) << 4;
    now.atomic_call = call;
}

void CombineAtomic(const Call& call, uint8_t* target, const uint8_t* source, uint32_t bytes, ElementKind kind,
                   uint32_t elem_bytes) {
    const int packed = CurrentBlock().atomic;
    if (kind != KindOf(packed)) {
        Fail(call, Pipe::Mte3, "atomic.type",
             "a copy of %u-byte elements while an atomic mode of another type is on; expected the type given to "
             "SetAtomic, or SetAtomicNone before",
             elem_bytes);
    }
    const AtomicMode mode = ModeOf(packed);
    switch (kind) {
        case ElementKind::Float:
            return CombineAll<float>(mode, target, source, bytes);
        case ElementKind::Half:
            return CombineAll<half>(mode, target, source, bytes);
        case ElementKind::Bfloat16:
            return CombineAll<bfloat16_t>(mode, target, source, bytes);
        case ElementKind::Int32:
            return CombineAll<int32_t>(mode, target, source, bytes);
        case ElementKind::Int16:
            return CombineAll<int16_t>(mode, target, source, bytes);
        case ElementKind::Int8:
            return CombineAll<int8_t>(mode, target, source, bytes);
        case ElementKind::Other:
            break;
    }
}

}  // namespace ascend_sim
