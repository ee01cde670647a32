// The allocator's ledger for C++ programs: who has which pages, on the host (docs/cpp.md, docs/spec.md, allocation).
//
// A call decides and gives work lists; ops carry them out on the device; commit_extension() or undo_release() closes
// it. One call at a time: what allocates for several threads takes a lock around the three.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <torch/custom_class.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dsv4_npu_ops/ops.h"

namespace dsv4_npu_ops {

using IntList = std::vector<int64_t>;

// The list of an op, int32 [rows, 8] on the host, and that of the full-to-swa mapping.
struct WorkLists {
    at::Tensor segments;
    int64_t num_items = 0;
    at::Tensor map_segments;
    int64_t num_map_items = 0;
};

// What an allocation came to. Where a pool lacks pages nothing has changed, and there is nothing to commit.
struct Extension {
    WorkLists work;
    IntList num_slots;  // entries of each pool's result
    IntList shortage;   // [pool, pages needed, pages free], or empty
    bool fits() const { return shortage.empty(); }
};

class Ledger {
  public:
    // By pool: usable pages, -1 where the pool does not exist; slots of a page; columns of its page table.
    Ledger(const IntList& num_pages, const IntList& page_sizes, const IntList& columns, int64_t sliding_window,
           int64_t max_requests, int64_t max_context_len, bool maps_full_to_swa = false) {
        const c10::ClassTypePtr type = torch::getCustomClass("__torch__.torch.classes.dsv4_npu_ops.KVLedger");
        TORCH_CHECK(type != nullptr, "dsv4_npu_ops::Ledger: load() comes first");
        object_ = c10::ivalue::Object::create(c10::WeakOrStrongTypePtr(c10::StrongTypePtr(nullptr, type)), 1);
        type_ = type;
        call("__init__", num_pages, page_sizes, columns, sliding_window, max_requests, max_context_len,
             maps_full_to_swa);
    }

    Extension alloc_extend(const IntList& requests, const IntList& prefix_lens, const IntList& seq_lens,
                           std::optional<int64_t> swa_tail = std::nullopt) {
        return extension(call("alloc_extend", requests, prefix_lens, seq_lens, swa_tail));
    }
    Extension reserve_extend(const IntList& requests, const IntList& prefix_lens, const IntList& seq_lens) {
        return extension(call("reserve_extend", requests, prefix_lens, seq_lens));
    }
    Extension alloc_decode(const IntList& requests, const IntList& seq_lens) {
        return extension(call("alloc_decode", requests, seq_lens));
    }
    void commit_extension() { call("commit_extension"); }

    // Work for release_pages.
    WorkLists evict(const IntList& requests, const IntList& committed_lens) {
        return work_lists(call("evict", requests, committed_lens));
    }
    WorkLists free(const IntList& requests) { return work_lists(call("free", requests)); }
    void undo_release() { call("undo_release"); }

    int64_t backup_state() { return call("backup_state").toInt(); }
    WorkLists restore_state(int64_t backup) { return work_lists(call("restore_state", backup)); }
    void discard_state(int64_t backup) { call("discard_state", backup); }

    int64_t available_pages(Pool pool) { return call("available_pages", static_cast<int64_t>(pool)).toInt(); }
    int64_t allocated_len(int64_t request) { return call("allocated_len", request).toInt(); }

  private:
    template <typename... Arguments>
    c10::IValue call(const char* method, const Arguments&... arguments) {
        std::vector<c10::IValue> stack{object_, c10::IValue(arguments)...};
        return type_->getMethod(method)(std::move(stack));
    }

    static WorkLists work_lists(const c10::IValue& value) {
        const auto& parts = value.toTupleRef().elements();
        const at::Tensor& all = parts[0].toTensor();
        const IntList counts = parts[1].toIntVector();
        return WorkLists{all.narrow(0, 0, counts[0]), counts[1], all.narrow(0, counts[0], counts[2]), counts[3]};
    }

    static Extension extension(const c10::IValue& value) {
        const auto& parts = value.toTupleRef().elements();
        return Extension{work_lists(parts[0]), parts[1].toIntVector(), parts[2].toIntVector()};
    }

    c10::intrusive_ptr<c10::ivalue::Object> object_;
    c10::ClassTypePtr type_;
};

}  // namespace dsv4_npu_ops
