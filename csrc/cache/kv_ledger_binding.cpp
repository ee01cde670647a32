// torch.classes.dsv4_npu_ops.KVLedger: the ledger with its segments as host tensors, int32 [S, 8].
#include <ATen/ops/empty.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "cache/kv_ledger.h"

namespace dsv4 {
namespace {

// Each list starts to count units at 0.
template <typename Segment>
Segment* write_rows(const std::vector<Segment>& segments, Segment* rows) {
    int32_t units = 0;
    for (const Segment& segment : segments) {
        *rows = segment;
        rows->units_before = units;
        units += segment.end_unit - segment.begin_unit;
        ++rows;
    }
    return rows;
}

// Both lists in one tensor, which goes to the device by one copy.
template <typename Segment>
at::Tensor to_tensor(const std::vector<Segment>& segments, const std::vector<MapSegment>& map_segments) {
    const auto count = static_cast<int64_t>(segments.size() + map_segments.size());
    at::Tensor tensor = at::empty({count, kSegmentFields}, at::kInt);
    Segment* end = write_rows(segments, reinterpret_cast<Segment*>(tensor.mutable_data_ptr<int32_t>()));
    write_rows(map_segments, reinterpret_cast<MapSegment*>(end));
    return tensor;
}

// (segments and map segments, how many of them are map segments, entries of each pool's output, [] or [lacking pool,
// pages needed, pages free])
using ExtensionResult = std::tuple<at::Tensor, int64_t, IntList, IntList>;

// (segments and map segments, how many of them are map segments)
using ReleaseResult = std::tuple<at::Tensor, int64_t>;

// (segments and map segments, how many of them are map segments, copied pages of each pool, where the targets start, [] or
// [lacking pool, pages needed, pages free])
using SharingResult = std::tuple<at::Tensor, int64_t, IntList, IntList, IntList>;

ReleaseResult result(const Release& release) {
    return {to_tensor(release.segments, release.map_segments), static_cast<int64_t>(release.map_segments.size())};
}

struct KVLedgerHolder : torch::CustomClassHolder {
    KVLedgerHolder(int64_t page_size, int64_t sliding_window, int64_t max_requests, int64_t max_context_len,
                   const IntList& num_pages, bool maps_full_to_swa)
        : ledger(page_size, sliding_window, max_requests, max_context_len, num_pages, maps_full_to_swa) {}

    ExtensionResult result(const KVLedger::Extension& extension) const {
        return {to_tensor(extension.segments, extension.map_segments),
                static_cast<int64_t>(extension.map_segments.size()),
                IntList(extension.num_slots.begin(), extension.num_slots.end()),
                shortage(extension.lacking_pool, extension.needed_pages)};
    }

    SharingResult result(const KVLedger::Sharing& sharing) const {
        return {to_tensor(sharing.segments, sharing.map_segments), static_cast<int64_t>(sharing.map_segments.size()),
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
        .def(torch::init<int64_t, int64_t, int64_t, int64_t, const IntList&, bool>())
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
                 return result(self->ledger.evict(requests, committed_lens));
             })
        .def("free", [](const Self& self, const IntList& requests) { return result(self->ledger.free(requests)); })
        .def("backup_state", [](const Self& self) { return self->ledger.backup_state(); })
        .def("restore_state",
             [](const Self& self, int64_t backup) { return result(self->ledger.restore_state(backup)); })
        .def("discard_state", [](const Self& self, int64_t backup) { self->ledger.discard_state(backup); })
        .def("available_pages", [](const Self& self, int64_t pool) { return self->ledger.available_pages(pool); })
        .def("allocated_len", [](const Self& self, int64_t request) { return self->ledger.allocated_len(request); });
}

}  // namespace dsv4
