#include <algorithm>
#include <cstring>

#include "ops/compressor_metadata/compressor_metadata.h"
#include "torch/rope_dtype.h"

namespace dsv4 {
namespace {

// Groups of one request, and its blocks.
struct Request {
    CompletedGroups groups;
    const int32_t* blocks;  // [W]
};

struct RequestReader {
    const void* cu_seqlens;      // [>= num_reqs + 1] int32 or int64
    const void* start_pos;       // [>= num_reqs] int32 or int64
    const int32_t* block_table;  // [>= num_reqs, W]
    const CompressorMetadataParams& p;

    static int64_t integer(const void* values, int32_t is_int64, int64_t index) {
        return is_int64 ? static_cast<const int64_t*>(values)[index] : static_cast<const int32_t*>(values)[index];
    }

    // Raises ValueError for a request that request_fault names.
    Request read(int64_t request) const {
        const int64_t begin = integer(cu_seqlens, p.cu_seqlens_is_int64, request);
        const int64_t end = integer(cu_seqlens, p.cu_seqlens_is_int64, request + 1);
        const int64_t start = integer(start_pos, p.start_pos_is_int64, request);
        const int32_t fault = request_fault(begin, end, start);
        TORCH_CHECK_VALUE(fault != kDecreasingCuSeqlens, "compressor_metadata: cu_seqlens[", request + 1, "] is ", end,
                          ", expected at least cu_seqlens[", request, "], which is ", begin);
        TORCH_CHECK_VALUE(fault != kTooManyTokens, "compressor_metadata: cu_seqlens[", request, "] and cu_seqlens[",
                          request + 1, "] are ", begin, " and ", end, ", expected at most ", kInt32Max,
                          " tokens between them");
        TORCH_CHECK_VALUE(fault != kStartTooLarge, "compressor_metadata: start_pos[", request, "] is ", start,
                          ", expected at most ", kInt32Max);
        return Request{completed_groups(start, end - begin, p.ratio),
                       block_table + block_entry_offset_elems(request, 0, p)};
    }
};

void check_flat_slots(const Request& request, int64_t index, const CompressorMetadataParams& p) {
    const int64_t last = request.groups.first + request.groups.count - 1;
    const int64_t columns = min_of(block_column(last, p) + 1, p.block_columns);
    for (int64_t column = block_column(request.groups.first, p); column < columns; ++column) {
        const int64_t block = request.blocks[column];
        TORCH_CHECK_VALUE(block_fits(block, p), "compressor_metadata: kv_block_table[", index, ", ",
                          column, "] is ", block, ", expected slots that fit int32 (kv_block_size is ", p.block_size,
                          ")");
    }
}

void check_values(const RequestReader& requests, int64_t num_rows) {
    const CompressorMetadataParams& p = requests.p;
    int64_t num_groups = 0;
    for (int64_t i = 0; i < p.num_reqs; ++i) {
        const Request request = requests.read(i);
        num_groups += request.groups.count;
        if (!p.pairs && request.groups.count > 0) {
            check_flat_slots(request, i, p);
        }
    }
    TORCH_CHECK_VALUE(num_groups <= num_rows, "compressor_metadata: num_rows is ", num_rows, ", expected at least ",
                      num_groups, " (groups that the step completes)");
}

// Writes rows of the outputs: cos, sin [rows, 1, 1, D] of element_t, slot_mapping [rows] or [rows, 2].
template <typename element_t>
class RowWriter {
  public:
    RowWriter(const CompressorMetadataInputs& in, const CompressorMetadataOutputs& out,
              const CompressorMetadataParams& p)
        : p_(p),
          table_cos_(in.rope_cos.const_data_ptr<element_t>()),
          table_sin_(in.rope_sin.const_data_ptr<element_t>()),
          cos_(out.cos.mutable_data_ptr<element_t>()),
          sin_(out.sin.mutable_data_ptr<element_t>()),
          slots_(out.slot_mapping.mutable_data_ptr<int32_t>()) {}

    void write(int64_t row, int64_t group, int64_t block) const {
        const int64_t from = group_position(group, p_.ratio) * p_.rope_dim;
        std::memcpy(cos_ + row * p_.rope_dim, table_cos_ + from, p_.rope_dim * sizeof(element_t));
        std::memcpy(sin_ + row * p_.rope_dim, table_sin_ + from, p_.rope_dim * sizeof(element_t));
        write_slot(row, block, block_offset(group, p_));
    }

    void write_dummy(int64_t row) const {
        std::fill_n(cos_ + row * p_.rope_dim, p_.rope_dim, static_cast<element_t>(1.0f));
        std::fill_n(sin_ + row * p_.rope_dim, p_.rope_dim, static_cast<element_t>(0.0f));
        write_slot(row, kDummyBlock, dummy_offset(p_));
    }

  private:
    void write_slot(int64_t row, int64_t block, int64_t offset) const {
        int32_t* slot = slots_ + slot_mapping_offset_elems(row, p_);
        if (p_.pairs) {
            slot[0] = static_cast<int32_t>(block);
            slot[1] = static_cast<int32_t>(offset);
        } else {
            slot[0] = static_cast<int32_t>(flat_slot(block, offset, p_));
        }
    }

    const CompressorMetadataParams& p_;
    const element_t* table_cos_;
    const element_t* table_sin_;
    element_t* cos_;
    element_t* sin_;
    int32_t* slots_;
};

template <typename element_t>
void write_rows(const RequestReader& requests, const RowWriter<element_t>& writer) {
    const CompressorMetadataParams& p = requests.p;
    int64_t row = 0;
    for (int64_t i = 0; i < p.num_reqs; ++i) {
        const Request request = requests.read(i);
        for (int64_t group = request.groups.first; group < request.groups.first + request.groups.count; ++group) {
            const int64_t block = group_in_tables(group, p) ? request.blocks[block_column(group, p)] : kDummyBlock;
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

void run(const CompressorMetadataParams& p, const CompressorMetadataInputs& in, const CompressorMetadataOutputs& out) {
    const RequestReader requests{in.cu_seqlens.const_data_ptr(), in.start_pos.const_data_ptr(),
                                 in.kv_block_table.const_data_ptr<int32_t>(), p};
    check_values(requests, in.num_rows);
    visit_rope_dtype(in.rope_cos.scalar_type(),
                     [&](auto element) { write_rows(requests, RowWriter<decltype(element)>(in, out, p)); });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_compressor_metadata<&run>(m); }

}  // namespace dsv4
