// The ops of dsv4_npu_ops for C++ programs: typed calls through torch's dispatcher, without Python (docs/cpp.md).
//
// load() comes first. An op raises c10::Error (c10::ValueError, c10::IndexError) as torch's own do. Arguments, shapes
// and contracts are those of csrc/ops/<op>/README.md; names of fields and forms are below.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace dsv4_npu_ops {

using Tensors = at::TensorList;
using Integers = at::IntArrayRef;
using Tensor = const at::Tensor&;
using MaybeTensor = const std::optional<at::Tensor>&;

// Loads the library that registers the ops: _C.abi3.so of the installed package (CMake: DSV4_NPU_OPS_LIBRARY). Once a
// process; again does nothing. Where the library for NPUs lies beside it, load_npu() loads that too.
inline void load(const std::string& library) {
    // Lazily: what it would need of Python is needed by Python only. Globally: the library for NPUs finds it.
    void* const handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL);
    TORCH_CHECK(handle != nullptr, "dsv4_npu_ops: ", library, " cannot be loaded: ", dlerror());
    const auto torch_version = reinterpret_cast<const char* (*)()>(dlsym(handle, "dsv4_npu_ops_torch_version"));
    const auto begin = reinterpret_cast<void (*)()>(dlsym(handle, "dsv4_npu_ops_begin"));
    TORCH_CHECK(torch_version != nullptr && begin != nullptr, "dsv4_npu_ops: ", library,
                " is not its library, or an older one");
    TORCH_CHECK(std::strcmp(torch_version(), TORCH_VERSION) == 0, "dsv4_npu_ops: ", library, " is for torch ",
                torch_version(), ", and this program for torch ", TORCH_VERSION);
    begin();
}

// Registers the kernels for NPUs: libdsv4_npu.so of the installed package, after torch_npu's libraries and load().
inline void load_npu(const std::string& library) {
    TORCH_CHECK(dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr, "dsv4_npu_ops: ", library,
                " cannot be loaded: ", dlerror());
}

// An op: found, and its signature compared, at the first call.
template <typename Signature>
class Op;

template <typename Result, typename... Arguments>
class Op<Result(Arguments...)> {
  public:
    constexpr Op(const char* name, const char* overload) : name_(name), overload_(overload) {}

    Result operator()(Arguments... arguments) const {
        std::call_once(found_, [this] { handle_ = handle(); });
        return handle_->call(std::forward<Arguments>(arguments)...);
    }

    c10::TypedOperatorHandle<Result(Arguments...)> handle() const {
        return c10::Dispatcher::singleton().findSchemaOrThrow(name_, overload_).template typed<Result(Arguments...)>();
    }

  private:
    const char* name_;
    const char* overload_;
    mutable std::once_flag found_;
    mutable std::optional<c10::TypedOperatorHandle<Result(Arguments...)>> handle_;
};

// Pools in table order; what an op takes or returns by pool comes in it.
enum Pool : int64_t { kFull, kSwa, kC4, kC128, kC4State, kC128State, kNumPools };

// Where the slots of the six pools stand (docs/spec.md, addressing).
class Pools {
  public:
    // Slots of page j of request q lie in page table[q, j].
    Pools& pages(Pool pool, const at::Tensor& table, int64_t page_size) {
        return set(pool, 1, table, log2(page_size) << 3);
    }
    // Unit u of request q has slot table[q, u].
    Pools& slots(Pool pool, const at::Tensor& table, int64_t page_size) {
        return set(pool, 2, table, log2(page_size) << 3);
    }
    // Token t has slot mapping[slot of t in base].
    Pools& mapped(Pool pool, const at::Tensor& mapping, int64_t page_size, Pool base = kFull) {
        return set(pool, 3, mapping, log2(page_size) << 3 | base << 18);
    }
    // A ring in each page of another pool.
    Pools& page_ring(Pool pool, int64_t ring, Pool base = kSwa) {
        return set(pool, 4, at::Tensor(), log2(ring) << 13 | base << 18);
    }
    // A ring a request.
    Pools& request_ring(Pool pool, int64_t ring) { return set(pool, 5, at::Tensor(), log2(ring) << 13); }
    // One place a request.
    Pools& bank(Pool pool) { return set(pool, 6, at::Tensor(), 0); }

    // The arguments `tables` and `addressing` of the ops.
    std::vector<at::Tensor> tables() const {
        std::vector<at::Tensor> given;
        for (const at::Tensor& table : tables_) {
            if (table.defined()) given.push_back(table);
        }
        return given;
    }
    Integers addressing() const { return numbers_; }

  private:
    static int64_t log2(int64_t size) {
        int64_t shift = 0;
        while ((int64_t{1} << shift) < size) ++shift;
        TORCH_CHECK_VALUE((int64_t{1} << shift) == size, "dsv4_npu_ops::Pools: a size is ", size,
                          ", expected a power of two from 1 up");
        return shift;
    }

    Pools& set(Pool pool, int64_t kind, const at::Tensor& table, int64_t sizes) {
        tables_[pool] = table;
        numbers_[pool] = kind | sizes;
        return *this;
    }

    std::array<at::Tensor, kNumPools> tables_;
    std::array<int64_t, kNumPools> numbers_{};
};

// Fields of a step; `fields` is the sum of 1 << field, and `out` has their buffers in ascending order.
constexpr int64_t slots_of(Pool pool) { return pool; }
constexpr int64_t page_table_of(Pool pool) { return 6 + pool; }
enum StepField : int64_t {
    kPositions = 12,
    kPositionsC4,
    kPositionsC128,
    kStartPos,
    kSeqUsed,
    kKvLens,
    kCuSeqlens,
    kNumGroups,
    kC4Cos,
    kC4Sin,
    kC128Cos,
    kC128Sin,
    kC4StateLocs,
    kC128StateLocs,
    kWindowLocs,
    kMainCos,
    kMainSin,
    kCompressCos,
    kCompressSin
};

// Forms of a step's rows (docs/spec.md, a step).
enum StepForm : int64_t { kPrefill, kFinal, kFinalRagged, kMixed, kVerify, kVerifyRagged };

// Buffers of a step, by field.
class StepOut {
  public:
    StepOut& want(int64_t field, const at::Tensor& buffer) {
        buffers_[field] = buffer;
        return *this;
    }
    int64_t fields() const {
        int64_t bits = 0;
        for (const auto& [field, buffer] : buffers_) bits |= int64_t{1} << field;
        return bits;
    }
    std::vector<at::Tensor> out() const {
        std::vector<at::Tensor> buffers;
        for (const auto& [field, buffer] : buffers_) buffers.push_back(buffer);
        return buffers;
    }

  private:
    std::map<int64_t, at::Tensor> buffers_;
};

// Arguments are those of the schemas, in their order (csrc/ops/<op>/README.md).
inline const Op<void(Tensors, Integers, MaybeTensor, Tensor, MaybeTensor, Tensor, MaybeTensor, MaybeTensor, MaybeTensor,
                     MaybeTensor, int64_t, int64_t, MaybeTensor, MaybeTensor, MaybeTensor, MaybeTensor, MaybeTensor,
                     MaybeTensor, MaybeTensor, MaybeTensor, MaybeTensor, MaybeTensor, bool, Integers)>
    advance_step{"dsv4_npu_ops::advance_step", ""};
inline const Op<std::vector<at::Tensor>(Tensor, Tensor, MaybeTensor, MaybeTensor, MaybeTensor, int64_t, bool)>
    advance_step_samples{"dsv4_npu_ops::advance_step", "samples"};
inline const Op<void(MaybeTensor, MaybeTensor, Tensor, Tensor, bool)> apply_rotary{"dsv4_npu_ops::apply_rotary", ""};
inline const Op<at::Tensor(Tensor, int64_t)> c4_slots_from_full{"dsv4_npu_ops::c4_slots_from_full", ""};
inline const Op<void(Tensor, Tensor)> c4_slots_from_full_out{"dsv4_npu_ops::c4_slots_from_full", "out"};
inline const Op<void(MaybeTensor, MaybeTensor, Tensor, Tensor, MaybeTensor, Tensor, int64_t, int64_t, int64_t, int64_t,
                     int64_t, MaybeTensor, MaybeTensor, MaybeTensor, MaybeTensor)>
    compressor_metadata{"dsv4_npu_ops::compressor_metadata", ""};
inline const Op<void(Tensors, Integers, MaybeTensor, MaybeTensor, Tensor, Tensor, Tensor, int64_t, int64_t, int64_t,
                     int64_t, int64_t, Tensor, Tensor, Tensor, Tensor, Tensor)>
    draft_steps{"dsv4_npu_ops::draft_steps", ""};
inline const Op<void(Tensor, Tensor, Tensor, Tensors, int64_t, int64_t, int64_t, Tensors, Tensors, Tensors, Tensors)>
    draft_steps_apart{"dsv4_npu_ops::draft_steps", "apart"};
inline const Op<std::vector<at::Tensor>(Integers, at::Device)> empty_tensors{"dsv4_npu_ops::empty_tensors", ""};
inline const Op<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
    Tensor, MaybeTensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int64_t, int64_t, int64_t,
    int64_t, int64_t, int64_t, std::optional<int64_t>)>
    extend_from_lists{"dsv4_npu_ops::extend_from_lists", ""};
inline const Op<std::tuple<c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, at::Tensor>(
    MaybeTensor, Tensor, int64_t, int64_t, std::optional<int64_t>)>
    extend_from_lists_needs{"dsv4_npu_ops::extend_from_lists", "needs"};
inline const Op<void(Tensor, Tensor, Tensor, Tensor, int64_t, int64_t)> map_full_to_swa{"dsv4_npu_ops::map_full_to_swa",
                                                                                        ""};
inline const Op<std::vector<int64_t>(int64_t, int64_t, int64_t)> payload_spans{"dsv4_npu_ops::payload_spans", ""};
inline const Op<void(Tensors, Tensor, Tensor, Integers, Integers, int64_t)> release_pages{"dsv4_npu_ops::release_pages",
                                                                                          ""};
inline const Op<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
    Tensors, Tensor, Tensor, Integers, Integers, Integers)>
    reserve_extend{"dsv4_npu_ops::reserve_extend", ""};
inline const Op<std::tuple<at::Tensor, at::Tensor>(Tensor, Tensor, Tensor, bool, std::optional<at::ScalarType>)>
    rope_gather{"dsv4_npu_ops::rope_gather", ""};
inline const Op<void(Tensor, Tensor, Tensor, bool, Tensor, Tensor)> rope_gather_out{"dsv4_npu_ops::rope_gather", "out"};
inline const Op<std::tuple<at::Tensor, at::Tensor>(Tensor, at::ScalarType)> rope_tables{"dsv4_npu_ops::rope_tables",
                                                                                        ""};
inline const Op<void(Tensor, Tensor, Tensor)> rope_tables_out{"dsv4_npu_ops::rope_tables", "out"};
inline const Op<std::tuple<at::Tensor, at::Tensor>(Tensors, Tensor, Tensor, Integers, int64_t, Integers, int64_t)>
    share_pages{"dsv4_npu_ops::share_pages", ""};
inline const Op<void(Tensors, Integers, MaybeTensor, Tensor, MaybeTensor, MaybeTensor, MaybeTensor, int64_t, int64_t,
                     int64_t, int64_t, Tensors, int64_t, Integers, Integers, int64_t, bool, MaybeTensor, MaybeTensor,
                     MaybeTensor, MaybeTensor)>
    step{"dsv4_npu_ops::step", ""};
inline const Op<std::vector<at::Tensor>(Tensors, Integers, MaybeTensor, Tensor, MaybeTensor, MaybeTensor, MaybeTensor,
                                        int64_t, int64_t, int64_t, int64_t, Integers, int64_t, Integers, Integers,
                                        int64_t, bool, MaybeTensor, MaybeTensor, MaybeTensor, MaybeTensor, MaybeTensor,
                                        MaybeTensor)>
    step_new{"dsv4_npu_ops::step", "new"};
inline const Op<std::tuple<c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, at::Tensor>(
    Tensor, MaybeTensor, int64_t, int64_t)>
    step_sizes{"dsv4_npu_ops::step_sizes", ""};
inline const Op<void(Tensor, Tensor, Tensors, Tensors, Integers, Integers, Integers, Integers, int64_t, Tensors)>
    token_slots{"dsv4_npu_ops::token_slots", ""};
inline const Op<void(Tensors, Integers, int64_t, Tensor, Tensor, Tensor, Tensors, MaybeTensor, MaybeTensor)>
    write_req_tables{"dsv4_npu_ops::write_req_tables", ""};

// Finds every op and compares its signature with the library's; raises for one that is another. Returns how many.
inline size_t check_all() {
    const auto check = [](const auto&... ops) {
        (ops.handle(), ...);
        return sizeof...(ops);
    };
    return check(advance_step, advance_step_samples, apply_rotary, c4_slots_from_full, c4_slots_from_full_out,
                 compressor_metadata, draft_steps, draft_steps_apart, empty_tensors, extend_from_lists,
                 extend_from_lists_needs, map_full_to_swa, payload_spans, release_pages, reserve_extend, rope_gather,
                 rope_gather_out, rope_tables, rope_tables_out, share_pages, step, step_new, step_sizes, token_slots,
                 write_req_tables);
}

}  // namespace dsv4_npu_ops
