#include <algorithm>

#include "cpu/integers.h"
#include "ops/compressor_metadata/compressor_metadata.h"
#include "torch/check.h"
#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

// Groups of one request, and where its blocks are.
struct Request {
    CompletedGroups groups;
    int64_t table_row;
};

struct RequestReader {
    RequestReader(const CompressorMetadataTensors& t, const CompressorMetadataParams& params)
        : p(params),
          cu_seqlens(t.cu_seqlens),
          start_pos(t.start_pos),
          req_pool_indices(t.req_pool_indices),
          kv_block_table(t.kv_block_table) {}

    const CompressorMetadataParams& p;
    cpu::IntegerInput cu_seqlens;
    cpu::IntegerInput start_pos;
    cpu::IntegerInput req_pool_indices;
    cpu::IntegerInput kv_block_table;

    // Raises ValueError for a request that request_fault names, or that has groups and no row of the block table.
    Request read(int64_t request) const {
        const int64_t begin = cu_seqlens[request];
        const int64_t end = cu_seqlens[request + 1];
        const int64_t start = start_pos[request];
        const int32_t fault = request_fault(begin, end, start);
        TORCH_CHECK_VALUE(fault != kDecreasingCuSeqlens, "compressor_metadata: cu_seqlens[", request + 1, "] is ", end,
                          ", expected at least cu_seqlens[", request, "], which is ", begin);
        TORCH_CHECK_VALUE(fault != kTooManyTokens, "compressor_metadata: cu_seqlens[", request, "] and cu_seqlens[",
                          request + 1, "] are ", begin, " and ", end, ", expected at most ", kInt32Max,
                          " tokens between them");
        TORCH_CHECK_VALUE(fault != kStartTooLarge, "compressor_metadata: start_pos[", request, "] is ", start,
                          ", expected at most ", kInt32Max);
        const CompletedGroups groups = completed_groups(start, end - begin, p);
        const int64_t row = p.has_requests ? req_pool_indices[request] : request;
        TORCH_CHECK_VALUE(groups.count == 0 || known_table_row(row, p), "compressor_metadata: req_pool_indices[",
                          request, "] is ", row, ", expected 0 <= index < ", p.block_rows, " (rows of kv_block_table)");
        return Request{groups, row};
    }

    int64_t block(const Request& request, int64_t column) const {
        return kv_block_table[block_entry_offset_elems(request.table_row, column, p)];
    }
};

void check_slots(const RequestReader& requests, const Request& request, int64_t index) {
    const CompressorMetadataParams& p = requests.p;
    const int64_t last = request.groups.first + request.groups.count - 1;
    const int64_t columns = min_of(block_column(last, p) + 1, p.block_columns);
    for (int64_t column = block_column(request.groups.first, p); column < columns; ++column) {
        const int64_t block = requests.block(request, column);
        TORCH_CHECK_VALUE(block_fits(block, p), "compressor_metadata: kv_block_table[",
                          p.has_requests ? request.table_row : index, ", ", column, "] is ", block,
                          ", expected slots that fit int32 (kv_block_size is ", p.block_size, ")");
    }
}

void check_values(const RequestReader& requests, int64_t num_rows) {
    int64_t num_groups = 0;
    for (int64_t i = 0; i < requests.p.num_reqs; ++i) {
        const Request request = requests.read(i);
        num_groups += request.groups.count;
        if (request.groups.count > 0) {
            check_slots(requests, request, i);
        }
    }
    TORCH_CHECK_VALUE(num_groups <= num_rows, "compressor_metadata: num_rows is ", num_rows, ", expected at least ",
                      num_groups, " (groups that the step completes)");
}

// Writes rows of the outputs that are asked for: cos, sin [rows, 1, 1, D] of element_t, slot_mapping [rows] or [rows,
// 2], positions [rows].
template <typename element_t>
class RowWriter {
  public:
    RowWriter(const CompressorMetadataTensors& t, const CompressorMetadataParams& p) : p_(p) {
        const at::Tensor* tables[2] = {&t.rope_cos, &t.rope_sin};
        for (int32_t table = 0; table < 2; ++table) {
            if (wants(p, kCompressorCos + table)) {
                from_[table] = tables[table]->const_data_ptr<element_t>();
                to_[table] = t.fields[kCompressorCos + table].mutable_data_ptr<element_t>();
            }
        }
        if (wants(p, kCompressorSlots)) {
            slots_ = t.fields[kCompressorSlots].mutable_data_ptr<int32_t>();
        }
        if (wants(p, kCompressorPositions)) {
            positions_ = t.fields[kCompressorPositions].mutable_data_ptr<int64_t>();
        }
    }

    void write(int64_t row, int64_t group, int64_t block) const {
        const int64_t position = group_position(group, p_.ratio);
        for (int32_t table = 0; table < 2; ++table) {
            if (to_[table] != nullptr) {
                std::copy_n(from_[table] + position * p_.rope_dim, p_.rope_dim, to_[table] + row * p_.rope_dim);
            }
        }
        write_place(row, block, block_offset(group, p_), position);
    }

    void write_dummy(int64_t row) const {
        for (int32_t table = 0; table < 2; ++table) {
            if (to_[table] != nullptr) {
                std::fill_n(to_[table] + row * p_.rope_dim, p_.rope_dim,
                            static_cast<element_t>(table == 0 ? 1.0f : 0.0f));
            }
        }
        write_place(row, kDummyBlock, dummy_offset(p_), kDummyPosition);
    }

  private:
    void write_place(int64_t row, int64_t block, int64_t offset, int64_t position) const {
        if (positions_ != nullptr) {
            positions_[row] = position;
        }
        if (slots_ == nullptr) {
            return;
        }
        int32_t* slot = slots_ + slot_mapping_offset_elems(row, p_);
        if (p_.pairs) {
            slot[0] = static_cast<int32_t>(block);
            slot[1] = static_cast<int32_t>(offset);
        } else {
            slot[0] = static_cast<int32_t>(flat_slot(block, offset, p_));
        }
    }

    const CompressorMetadataParams& p_;
    const element_t* from_[2] = {nullptr, nullptr};  // RoPE tables
    element_t* to_[2] = {nullptr, nullptr};          // and rows
    int32_t* slots_ = nullptr;
    int64_t* positions_ = nullptr;
};

template <typename element_t>
void write_rows(const RequestReader& requests, const RowWriter<element_t>& writer) {
    const CompressorMetadataParams& p = requests.p;
    int64_t row = 0;
    for (int64_t i = 0; i < p.num_reqs; ++i) {
        const Request request = requests.read(i);
        for (int64_t group = request.groups.first; group < request.groups.first + request.groups.count; ++group) {
            const int64_t block =
                group_in_tables(group, p) ? requests.block(request, block_column(group, p)) : kDummyBlock;
            if (block >= 0) {
                writer.write(row++, group, block);
            } else {
                writer.write_dummy(row++);
            }
        }
    }
    while (row < p.num_rows) {
        writer.write_dummy(row++);
    }
}

void run(const CompressorMetadataParams& p, const CompressorMetadataTensors& t, int64_t num_rows) {
    const RequestReader requests(t, p);
    check_values(requests, num_rows);
    if (!t.rope_cos.defined()) {
        write_rows(requests, RowWriter<float>(t, p));
        return;
    }
    visit_rope_dtype(t.rope_cos.scalar_type(),
                     [&](auto element) { write_rows(requests, RowWriter<decltype(element)>(t, p)); });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_compressor_metadata<&run>(m); }

}  // namespace dsv4
