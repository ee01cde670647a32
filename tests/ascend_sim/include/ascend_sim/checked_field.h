// A parameter field that keeps what it was given, so that a value too large for the device's field is an error
// instead of a silent truncation.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ascend_sim {

template <class Field>
class CheckedField {
  public:
    constexpr CheckedField() = default;
    template <class I, class = std::enable_if_t<std::is_integral_v<I> || std::is_enum_v<I>>>
    constexpr CheckedField(I value) : value_(static_cast<int64_t>(value)) {}

    constexpr operator Field() const { return static_cast<Field>(value_); }
    constexpr int64_t wide() const { return value_; }

    template <class I>
    CheckedField& operator+=(I other) {
        value_ += static_cast<int64_t>(other);
        return *this;
    }
    template <class I>
    CheckedField& operator-=(I other) {
        value_ -= static_cast<int64_t>(other);
        return *this;
    }
    template <class I>
    CheckedField& operator*=(I other) {
        value_ *= static_cast<int64_t>(other);
        return *this;
    }

  private:
    int64_t value_ = 0;
};

}  // namespace ascend_sim
