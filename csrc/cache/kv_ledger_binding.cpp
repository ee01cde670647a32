// torch.classes.dsv4_npu_ops.KVLedger: the ledger with its work lists as host tensors.
#include <ATen/ops/empty.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "cache/kv_ledger.h"
#include "cache/list_parts.h"

namespace dsv4 {
namespace {

// Both lists, as the ops take them, in one tensor, which goes to the device by one copy; and [rows of the first, its items,
// rows of the second, its items].
using WorkLists = std::tuple<at::Tensor, IntList>;

template <typename Segment>
WorkLists work_lists(const std::vector<Segment>& segments, const std::vector<MapSegment>& map_segments) {
    const auto count = static_cast<int64_t>(segments.size());
    const auto map_count = static_cast<int64_t>(map_segments.size());
    at::Tensor tensor = at::empty({list_rows(count) + list_rows(map_count), kSegmentFields}, at::kInt);
    auto* rows = tensor.mutable_data_ptr<int32_t>();
    const int64_t items = write_list(segments, rows);
    const int64_t map_items = write_list(map_segments, rows + list_rows(count) * kSegmentFields);
    return {std::move(tensor), IntList{list_rows(count), items, list_rows(map_count), map_items}};
}

WorkLists work_lists(const Release& release) { return work_lists(release.segments, release.map_segments); }

// (work lists, entries of each pool's output, [] or [lacking pool, pages needed, pages free])
using ExtensionResult = std::tuple<WorkLists, IntList, IntList>;

// (work lists, copied pages of each pool, where the targets start, [] or [lacking pool, pages needed, pages free])
using SharingResult = std::tuple<WorkLists, IntList, IntList, IntList>;

struct KVLedgerHolder : torch::CustomClassHolder {
    KVLedgerHolder(const IntList& num_pages, const IntList& page_sizes, const IntList& columns, int64_t sliding_window,
                   int64_t max_requests, int64_t max_context_len, bool maps_full_to_swa)
        : ledger(num_pages, page_sizes, columns, sliding_window, max_requests, max_context_len, maps_full_to_swa) {}

    ExtensionResult result(const KVLedger::Extension& extension) const {
        return {work_lists(extension.segments, extension.map_segments),
                IntList(extension.num_slots.begin(), extension.num_slots.end()),
                shortage(extension.lacking_pool, extension.needed_pages)};
    }

    SharingResult result(const KVLedger::Sharing& sharing) const {
        return {work_lists(sharing.segments, sharing.map_segments),
                IntList(sharing.num_copies.begin(), sharing.num_copies.end()), sharing.starts,
                shortage(sharing.lacking_pool, sharing.needed_pages)};
    }

    IntList shortage(int64_t lacking_pool, int64_t needed_pages) const {
        return lacking_pool < 0 ? IntList{}
                                : IntList{lacking_pool, needed_pages, ledger.available_pages(lacking_pool)};
    }

    KVLedger ledger;
};

using Self = c10::intrusive_ptr<KVLedgerHolder>;

}  // namespace

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.class_<KVLedgerHolder>("KVLedger")
        .def(torch::init<const IntList&, const IntList&, const IntList&, int64_t, int64_t, int64_t, bool>())
        .def("alloc_extend",
             [](const Self& self, const IntList& requests, const IntList& prefix_lens, const IntList& seq_lens,
                std::optional<int64_t> swa_tail) {
                 return self->result(self->ledger.alloc_extend(requests, prefix_lens, seq_lens, swa_tail));
             })
        .def("reserve_extend",
             [](const Self& self, const IntList& requests, const IntList& prefix_lens, const IntList& seq_lens) {
                 return self->result(self->ledger.reserve_extend(requests, prefix_lens, seq_lens));
             })
        .def("alloc_decode",
             [](const Self& self, const IntList& requests, const IntList& seq_lens) {
                 return self->result(self->ledger.alloc_decode(requests, seq_lens));
             })
        .def("commit_extension", [](const Self& self) { self->ledger.commit_extension(); })
        .def("share_prefix",
             [](const Self& self, const IntList& sources, const IntList& targets, const IntList& prefix_lens) {
                 return self->result(self->ledger.share_prefix(sources, targets, prefix_lens));
             })
        .def("commit_sharing", [](const Self& self) { self->ledger.commit_sharing(); })
        .def("shareable_len", [](const Self& self, int64_t source,
                                 int64_t prefix_len) { return self->ledger.shareable_len(source, prefix_len); })
        .def("undo_release", [](const Self& self) { self->ledger.undo_release(); })
        .def("evict",
             [](const Self& self, const IntList& requests, const IntList& committed_lens) {
                 return work_lists(self->ledger.evict(requests, committed_lens));
             })
        .def("free", [](const Self& self, const IntList& requests) { return work_lists(self->ledger.free(requests)); })
        .def("backup_state", [](const Self& self) { return self->ledger.backup_state(); })
        .def("restore_state",
             [](const Self& self, int64_t backup) { return work_lists(self->ledger.restore_state(backup)); })
        .def("discard_state", [](const Self& self, int64_t backup) { self->ledger.discard_state(backup); })
        .def("available_pages", [](const Self& self, int64_t pool) { return self->ledger.available_pages(pool); })
        .def("shared_pages", [](const Self& self, int64_t request,
                                int64_t pool) { return self->ledger.shared_pages(request, pool); })
        .def("allocated_len", [](const Self& self, int64_t request) { return self->ledger.allocated_len(request); });
}

}  // namespace dsv4
