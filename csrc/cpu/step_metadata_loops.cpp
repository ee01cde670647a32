#include "cpu/step_metadata_loops.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "cpu/rows_per_thread.h"

namespace dsv4::cpu {
namespace {

// Page-table entries below which a second thread costs more than it writes.
constexpr int64_t kEntriesPerThread = 1 << 17;
constexpr int64_t kRopeBytesPerThread = 1 << 19;

// Writes value_of(row) for every row, where the field is asked for.
template <typename ValueOf>
void write_row_vector(const ScannedStep& step, const StepTensors& t, int32_t field, const ValueOf& value_of) {
    if (!t.fields[field].defined()) {
        return;
    }
    int32_t* target = t.fields[field].mutable_data_ptr<int32_t>();  // [B]
    for (const ScannedRow& row : step.rows) {
        *target++ = static_cast<int32_t>(value_of(row));
    }
}

void write_row_vectors(const ScannedStep& step, const StepParams& p, const StepTensors& t) {
    write_row_vector(step, t, kFieldStartPos, [](const ScannedRow& row) { return row.start; });
    write_row_vector(step, t, kFieldSeqUsed, [](const ScannedRow& row) { return row.num_new; });
    write_row_vector(step, t, kFieldKvLens, [](const ScannedRow& row) { return kv_length(row); });
    write_row_vector(step, t, kFieldCuSeqlens, [](const ScannedRow& row) { return row.token_begin; });
    if (wants(p, kFieldCuSeqlens)) {
        const int64_t last = p.rows.closes_cu_seqlens ? p.rows.num_tokens : step.num_tokens;
        t.fields[kFieldCuSeqlens].mutable_data_ptr<int32_t>()[p.rows.num_rows] = static_cast<int32_t>(last);
    }
    if (wants(p, kFieldNumGroups)) {
        int32_t* num_groups = t.fields[kFieldNumGroups].mutable_data_ptr<int32_t>();  // [2]
        num_groups[0] = static_cast<int32_t>(step.groups[0]);
        num_groups[1] = static_cast<int32_t>(step.groups[1]);
    }
}

void write_positions(const ScannedStep& step, const at::Tensor& out) {
    int64_t* positions = out.mutable_data_ptr<int64_t>();  // [T]
    int64_t written = 0;
    for (const ScannedRow& row : step.rows) {
        if (is_padding(row)) {
            continue;
        }
        std::fill(positions + written, positions + row.token_begin, 0);
        int64_t* target = positions + row.token_begin;
        for (int64_t k = 0; k < row.num_new; ++k) {
            target[k] = row.start + k;
        }
        written = row.token_begin + row.num_new;
    }
    std::fill(positions + written, positions + out.size(0), 0);
}

template <int64_t ratio>
void write_group_positions(const ScannedStep& step, const at::Tensor& out) {
    int64_t* positions = out.mutable_data_ptr<int64_t>();  // [capacity]
    int64_t written = 0;
    for (const ScannedRow& row : step.rows) {
        for (int64_t group = first_group(row, ratio); group < last_group(row, ratio); ++group) {
            positions[written++] = group_position(group, ratio);
        }
    }
    std::fill(positions + written, positions + out.size(0), 0);
}

// table: [max_pos, D]; out: [capacity, D]. Behind the groups stands the row of position 0, a rotation by nothing.
template <int64_t ratio>
void write_rope_rows(const ScannedStep& step, const at::Tensor& table, const at::Tensor& out) {
    const int64_t dim = table.size(1);
    if (dim == 0) {
        return;
    }
    const float* source = table.const_data_ptr<float>();
    float* target = out.mutable_data_ptr<float>();
    float* const end = target + out.size(0) * dim;
    for (const ScannedRow& row : step.rows) {
        for (int64_t group = first_group(row, ratio); group < last_group(row, ratio); ++group) {
            target = std::copy_n(source + group_position(group, ratio) * dim, dim, target);
        }
    }
    while (target != end) {
        target = std::copy_n(source, dim, target);
    }
}

template <int64_t ratio>
void write_groups(const ScannedStep& step, const StepParams& p, const StepTensors& t) {
    constexpr int32_t which = ratio == kRatioC4 ? 0 : 1;
    if (wants(p, kFieldGroupPositions + which)) {
        write_group_positions<ratio>(step, t.fields[kFieldGroupPositions + which]);
    }
    constexpr int32_t cos = kFieldC4Cos + 2 * which;
    if (wants(p, cos)) {
        write_rope_rows<ratio>(step, t.rope_cos, t.fields[cos]);
    }
    if (wants(p, cos + 1)) {
        write_rope_rows<ratio>(step, t.rope_sin, t.fields[cos + 1]);
    }
}

// table: [max_pos, D]; out: [T, D], of one type. Padding has the row of position 0, as its positions are 0.
void write_token_rope(const ScannedStep& step, const at::Tensor& table, const at::Tensor& out) {
    const int64_t row_bytes = table.size(1) * table.element_size();
    const char* source = static_cast<const char*>(table.const_data_ptr());
    char* target = static_cast<char*>(out.mutable_data_ptr());
    const auto repeat_first = [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) {
            std::copy_n(source, row_bytes, target + token * row_bytes);
        }
    };
    const int64_t num_rows = static_cast<int64_t>(step.rows.size());
    const int64_t mean_bytes = num_rows == 0 ? 0 : step.num_tokens * row_bytes / num_rows;
    at::parallel_for(0, num_rows, rows_per_thread(kRopeBytesPerThread, mean_bytes), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const ScannedRow& row = step.rows[i];
            std::copy_n(source + row.start * row_bytes, row.num_new * row_bytes, target + row.token_begin * row_bytes);
            repeat_first(row.token_begin + row.num_new, row.token_begin + row.token_width);
        }
    });
    repeat_first(step.num_tokens, out.size(0));
}

// By bytes where the dummy allows it: several times as fast on the many entries behind a window.
void fill_pages(int32_t* begin, int32_t* end, int32_t dummy) {
    if (dummy == 0 || dummy == -1) {
        std::fill(reinterpret_cast<char*>(begin), reinterpret_cast<char*>(end), static_cast<char>(dummy));
    } else {
        std::fill(begin, end, dummy);
    }
}

// Rows [begin, end) of a page table. A window is a few entries of many: filling all of a row, or all rows where they
// touch, and then writing it takes less than filling what lies around it.
void write_page_rows(const ScannedStep& step, const StepParams& p, const PoolSlots& slots, int32_t pool, int32_t* pages,
                     int64_t begin, int64_t end) {
    const int64_t columns = p.page_columns[pool];
    const int64_t row_elems = p.page_row_elems[pool];
    const int32_t dummy = p.dummy_pages[pool];
    const bool windowed = is_windowed_pool(pool);
    const bool filled = windowed && row_elems == columns;
    if (filled) {
        fill_pages(pages + begin * columns, pages + end * columns, dummy);
    }
    for (int64_t i = begin; i < end; ++i) {
        const ScannedRow& row = step.rows[i];
        const PageSpan span = page_span(pool, row, p);
        int32_t* target = pages + i * row_elems;
        if (!filled) {
            fill_pages(target + (windowed ? 0 : span.end), target + columns, dummy);
        }
        slots.write_pages(pool, row.request, span.begin, span.end, dummy, target + span.begin);
        if (pool == kSwa && is_padding(row)) {
            target[0] = kPaddingPage;
        }
    }
}

// All tables in one go, so that threads meet once.
void write_page_tables(const ScannedStep& step, const StepParams& p, const StepTensors& t, const PoolSlots& slots) {
    int32_t* pages[kNumPools] = {};  // [B, columns], rows at any distance
    int64_t row_entries = 1;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (wants(p, kFieldPageTable + pool)) {
            pages[pool] = t.fields[kFieldPageTable + pool].mutable_data_ptr<int32_t>();
            row_entries += p.page_columns[pool];
        }
    }
    const auto write_rows = [&](int64_t begin, int64_t end) {
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            if (pages[pool] != nullptr) {
                write_page_rows(step, p, slots, pool, pages[pool], begin, end);
            }
        }
    };
    at::parallel_for(0, p.rows.num_rows, rows_per_thread(kEntriesPerThread, row_entries), write_rows);
}

}  // namespace

void write_step_metadata(const ScannedStep& step, const StepParams& p, const StepTensors& t, const PoolSlots& slots) {
    write_row_vectors(step, p, t);
    if (wants(p, kFieldPositions)) {
        write_positions(step, t.fields[kFieldPositions]);
    }
    write_groups<kRatioC4>(step, p, t);
    write_groups<kRatioC128>(step, p, t);
    for (int32_t i = 0; i < kNumTokenRope; ++i) {
        if (wants(p, kFieldMainCos + i)) {
            write_token_rope(step, t.token_rope[i], t.fields[kFieldMainCos + i]);
        }
    }
    write_page_tables(step, p, t, slots);
}

}  // namespace dsv4::cpu
