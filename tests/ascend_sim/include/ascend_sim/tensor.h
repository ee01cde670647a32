// LocalTensor and GlobalTensor: checked views. Offsets and sizes are in elements unless a name says bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ascend_sim/float16.h"
#include "ascend_sim/instruction.h"
#include "ascend_sim/runtime.h"
#include "ascend_sim/types.h"

namespace AscendC {

using ascend_sim::Call;
using ascend_sim::CallSite;

// The argument of operator[]: keeps the caller's line and the value as it was given.
struct OffsetArgument {
    int64_t value;  // elements
    CallSite site;

    template <class I, class = std::enable_if_t<std::is_integral_v<I> || std::is_enum_v<I>>>
    OffsetArgument(I given, CallSite where = CallSite::Here()) : value(static_cast<int64_t>(given)), site(where) {}
};

template <class T>
class LocalTensor;

// What `a + b`, `a - b` or `a * b` of tensors means until it is assigned.
template <class T>
struct TensorExpression {
    char op;
    const LocalTensor<T>& left;
    const LocalTensor<T>& right;

    void StoreTo(const LocalTensor<T>& dst) const;
};

template <class T>
class LocalTensor {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "no such element size");

  public:
    using PrimType = T;

    // What operator() gives: reads and writes go through the checks of GetValue and SetValue.
    class Element {
      public:
        Element(const LocalTensor& tensor, uint32_t index, CallSite site)
            : tensor_(tensor), index_(index), site_(site) {}
        operator T() const { return tensor_.GetValue(index_, site_); }
        const Element& operator=(T value) const {
            tensor_.SetValue(index_, value, site_);
            return *this;
        }

      private:
        const LocalTensor& tensor_;
        uint32_t index_;
        CallSite site_;
    };

    LocalTensor() = default;
    explicit LocalTensor(const ascend_sim::UbView& view) : view_(view) {}

    void operator=(const TensorExpression<T>& expression) { expression.StoreTo(*this); }
    TensorExpression<T> operator+(const LocalTensor& other) const { return {'+', *this, other}; }
    TensorExpression<T> operator-(const LocalTensor& other) const { return {'-', *this, other}; }
    TensorExpression<T> operator*(const LocalTensor& other) const { return {'*', *this, other}; }

    T GetValue(const uint32_t index, CallSite site = CallSite::Here()) const {
        const Call call{"LocalTensor::GetValue", site};
        CheckIndex(call, index);
        const uint32_t address = view_.address + index * static_cast<uint32_t>(sizeof(T));
        ascend_sim::ScalarUbRead(call, address, sizeof(T));
        T value;
        std::memcpy(&value, ascend_sim::UbMemory() + address, sizeof(T));
        return value;
    }

    template <class U>
    void SetValue(const uint32_t index, const U value, CallSite site = CallSite::Here()) const {
        const Call call{"LocalTensor::SetValue", site};
        CheckIndex(call, index);
        const uint32_t address = view_.address + index * static_cast<uint32_t>(sizeof(T));
        ascend_sim::ScalarUbWrite(call, address, sizeof(T));
        const T stored = static_cast<T>(value);
        std::memcpy(ascend_sim::UbMemory() + address, &stored, sizeof(T));
    }

    Element operator()(const uint32_t index, CallSite site = CallSite::Here()) const {
        return Element(*this, index, site);
    }

    LocalTensor operator[](const OffsetArgument offset) const {
        if (offset.value < 0 || offset.value >= int64_t{GetSize()}) {
            ascend_sim::Fail(Call{"LocalTensor::operator[]", offset.site}, ascend_sim::Pipe::S, "bounds.index",
                             "offset %lld; expected less than the tensor's %u elements",
                             static_cast<long long>(offset.value), GetSize());
        }
        const uint32_t bytes = static_cast<uint32_t>(offset.value) * static_cast<uint32_t>(sizeof(T));
        ascend_sim::UbView view = view_;
        view.address += bytes;
        view.bytes -= bytes;
        return LocalTensor(view);
    }

    template <class U>
    LocalTensor<U> ReinterpretCast() const {
        if (view_.bytes % sizeof(U) != 0) {
            ascend_sim::Fail(Call{"LocalTensor::ReinterpretCast", CallSite{"", 0}}, ascend_sim::Pipe::S,
                             "bounds.reinterpret", "%u bytes; expected a multiple of %zu", view_.bytes, sizeof(U));
        }
        return LocalTensor<U>(view_);
    }

    uint32_t GetSize() const { return view_.bytes / static_cast<uint32_t>(sizeof(T)); }
    uint32_t GetLength() const { return view_.bytes; }
    void SetSize(const uint32_t size, CallSite site = CallSite::Here()) {
        const uint64_t bytes = uint64_t{size} * sizeof(T);
        if (view_.address + bytes > ascend_sim::kUbBytes) {
            ascend_sim::Fail(Call{"LocalTensor::SetSize", site}, ascend_sim::Pipe::S, "bounds.ub",
                             "%u elements from UB 0x%05x; expected an end within UB", size, view_.address);
        }
        view_.bytes = static_cast<uint32_t>(bytes);
    }

    // Past all checks: the simulator says once that it was taken, and takes the tensor for written from then on.
    __ubuf__ T* GetPhyAddr(CallSite site = CallSite::Here()) const {
        ascend_sim::ExposeUb(Call{"LocalTensor::GetPhyAddr", site}, view_);
        return reinterpret_cast<__ubuf__ T*>(ascend_sim::UbMemory() + view_.address);
    }
    __ubuf__ T* GetPhyAddr(const uint32_t offset, CallSite site = CallSite::Here()) const {
        return GetPhyAddr(site) + offset;
    }

    const ascend_sim::UbView& view() const { return view_; }

  private:
    void CheckIndex(const Call& call, uint32_t index) const {
        if (index >= GetSize()) {
            ascend_sim::Fail(call, ascend_sim::Pipe::S, "bounds.index",
                             "index %u (UB 0x%05x); expected less than the tensor's %u elements", index,
                             view_.address + index * static_cast<uint32_t>(sizeof(T)), GetSize());
        }
    }

    ascend_sim::UbView view_;
};

template <class T>
class GlobalTensor {
  public:
    using PrimType = T;

    GlobalTensor() = default;

    // bufferSize: elements.
    void SetGlobalBuffer(__gm__ T* buffer, uint64_t bufferSize) {
        view_.address = reinterpret_cast<uint64_t>(buffer);
        view_.bytes = bufferSize * sizeof(T);
        sized_ = true;
    }
    void SetGlobalBuffer(__gm__ T* buffer) {
        view_.address = reinterpret_cast<uint64_t>(buffer);
        view_.bytes = ~uint64_t{0};
        sized_ = false;
    }

    T GetValue(const uint64_t offset, CallSite site = CallSite::Here()) const {
        const Call call{"GlobalTensor::GetValue", site};
        CheckIndex(call, offset);
        T value;
        std::memcpy(&value, ascend_sim::ScalarGmRead(call, view_.address + offset * sizeof(T), sizeof(T)), sizeof(T));
        return value;
    }
    void SetValue(const uint64_t offset, T value, CallSite site = CallSite::Here()) const {
        const Call call{"GlobalTensor::SetValue", site};
        CheckIndex(call, offset);
        std::memcpy(ascend_sim::ScalarGmWrite(call, view_.address + offset * sizeof(T), sizeof(T)), &value, sizeof(T));
    }
    T operator()(const uint64_t offset, CallSite site = CallSite::Here()) const { return GetValue(offset, site); }

    GlobalTensor operator[](const OffsetArgument offset) const {
        const uint64_t elems = static_cast<uint64_t>(offset.value);
        const bool beyond = sized_ && elems > view_.bytes / sizeof(T);
        if (offset.value < 0 || beyond) {
            // An address only: what is copied from there is checked against the allocation.
            ascend_sim::Complain(Call{"GlobalTensor::operator[]", offset.site}, ascend_sim::Pipe::S, "bounds.index",
                                 "offset %lld; expected 0 to the tensor's %llu elements",
                                 static_cast<long long>(offset.value),
                                 static_cast<unsigned long long>(sized_ ? view_.bytes / sizeof(T) : 0));
        }
        GlobalTensor part = *this;
        part.view_.address += elems * sizeof(T);
        if (sized_) {
            part.view_.bytes = beyond || offset.value < 0 ? 0 : view_.bytes - elems * sizeof(T);
        }
        return part;
    }

    __gm__ T* GetPhyAddr() const { return reinterpret_cast<__gm__ T*>(view_.address); }
    __gm__ T* GetPhyAddr(const uint64_t offset) const { return GetPhyAddr() + offset; }
    uint64_t GetSize(CallSite site = CallSite::Here()) const {
        if (!sized_) {
            ascend_sim::Fail(Call{"GlobalTensor::GetSize", site}, ascend_sim::Pipe::S, "gm.unsized",
                             "SetGlobalBuffer was given no size; the device returns garbage, expected a size");
        }
        return view_.bytes / sizeof(T);
    }
    // A hint for the L2 cache, which is not modelled.
    void SetL2CacheHint(CacheMode mode) { (void)mode; }

    const ascend_sim::GmView& view() const { return view_; }

  private:
    void CheckIndex(const Call& call, uint64_t offset) const {
        if (view_.address == 0) {
            ascend_sim::Fail(call, ascend_sim::Pipe::S, "gm.unset", "no address; expected SetGlobalBuffer before");
        }
        if (sized_ && offset >= view_.bytes / sizeof(T)) {
            ascend_sim::Complain(
                call, ascend_sim::Pipe::S, "bounds.index", "index %llu; expected less than the tensor's %llu elements",
                static_cast<unsigned long long>(offset), static_cast<unsigned long long>(view_.bytes / sizeof(T)));
        }
    }

    ascend_sim::GmView view_;
    bool sized_ = false;
};

}  // namespace AscendC
