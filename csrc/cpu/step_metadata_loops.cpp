#include "cpu/step_metadata_loops.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "cpu/step_slot_loops.h"

namespace dsv4::cpu {
namespace {

// Page-table entries below which a second thread costs more than it writes.
constexpr int64_t kEntriesPerThread = 1 << 17;

void check_pages(const char* op, const char* name, int64_t row_elems, int64_t columns, int64_t needed) {
    TORCH_CHECK_VALUE(!pool_exists(row_elems) || columns >= needed, op, ": ", name, " has ", columns,
                      " columns, expected at least ", needed, " (pages of the longest row)");
}

void write_row_vectors(const ScannedStep& step, const MetadataTensors& out) {
    int32_t* start_pos = out.start_pos.mutable_data_ptr<int32_t>();    // [B]
    int32_t* seqused = out.seqused.mutable_data_ptr<int32_t>();        // [B]
    int32_t* cu_seqlens = out.cu_seqlens.mutable_data_ptr<int32_t>();  // [B + 1]
    int32_t* kv_lens = out.kv_lens.mutable_data_ptr<int32_t>();        // [B]
    const int64_t num_rows = static_cast<int64_t>(step.rows.size());
    for (int64_t i = 0; i < num_rows; ++i) {
        const ScannedRow& row = step.rows[i];
        start_pos[i] = static_cast<int32_t>(row.start);
        seqused[i] = static_cast<int32_t>(row.num_new);
        cu_seqlens[i] = static_cast<int32_t>(row.token_begin);
        kv_lens[i] = static_cast<int32_t>(kv_length(row));
    }
    cu_seqlens[num_rows] = static_cast<int32_t>(step.num_tokens);
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

// table: int32 slots, row_elems between rows; out: int32 [B, columns]. span_of gives the entries of a row that name
// pages, fill stands in all others.
template <int32_t fill, typename SpanOf>
void write_page_table(const ScannedStep& step, const at::Tensor& table, int64_t row_elems, const at::Tensor& out,
                      int32_t page_shift, const SpanOf& span_of) {
    if (!pool_exists(row_elems)) {
        return;
    }
    static_assert(fill == 0 || fill == -1, "memset fills bytes");
    const int32_t* slots = table.const_data_ptr<int32_t>();
    int32_t* pages = out.mutable_data_ptr<int32_t>();
    const int64_t columns = out.size(1);
    const int64_t num_rows = static_cast<int64_t>(step.rows.size());
    at::parallel_for(0, num_rows, max_of<int64_t>(1, kEntriesPerThread / columns), [&](int64_t begin, int64_t end) {
        // One fill of the whole block is cheaper than two short ones a row.
        std::memset(pages + begin * columns, fill, (end - begin) * columns * sizeof(int32_t));
        for (int64_t i = begin; i < end; ++i) {
            const ScannedRow& row = step.rows[i];
            const PageSpan span = span_of(row);
            const int32_t* source = slots + row.request * row_elems;
            int32_t* target = pages + i * columns;
            for (int64_t page = span.begin; page < span.end; ++page) {
                target[page] = source[first_unit_of_page(page, page_shift)] >> page_shift;
            }
        }
    });
}

// Attention takes a row whose first entry is -1 for a broken one; padding gets the reserved page instead.
void write_padding_pages(const ScannedStep& step, const at::Tensor& swa_page_table) {
    int32_t* pages = swa_page_table.mutable_data_ptr<int32_t>();
    const int64_t columns = swa_page_table.size(1);
    for (size_t i = 0; i < step.rows.size() && columns > 0; ++i) {
        if (is_padding(step.rows[i])) {
            pages[i * columns] = kSkipPage;
        }
    }
}

void write_page_tables(const ScannedStep& step, const StepMetadataParams& p, const MetadataTables& tables,
                       const MetadataTensors& out) {
    write_page_table<kNoPage>(step, tables.swa, p.swa_row_elems, out.swa_page_table, p.page_shift,
                              [&](const StepRow& row) { return swa_pages(row, p); });
    write_page_table<kNoPage>(step, tables.c4, p.c4_row_elems, out.c4_page_table, p.page_shift,
                              [&](const StepRow& row) { return group_pages(row, kRatioC4, p); });
    write_page_table<kNoPage>(step, tables.c128, p.c128_row_elems, out.c128_page_table, p.page_shift,
                              [&](const StepRow& row) { return group_pages(row, kRatioC128, p); });
    write_page_table<kSkipPage>(step, tables.c4_state, p.c4_state_row_elems, out.c4_state_page_table, p.page_shift,
                                [&](const StepRow& row) { return state_pages(row, kRatioC4, p); });
    write_page_table<kSkipPage>(step, tables.c128_state, p.c128_state_row_elems, out.c128_state_page_table,
                                p.page_shift, [&](const StepRow& row) { return state_pages(row, kRatioC128, p); });
    write_padding_pages(step, out.swa_page_table);
}

}  // namespace

void check_metadata_capacity(const char* op, const ScannedStep& step, const StepMetadataParams& p) {
    check_group_capacity(op, "positions_c4", p.c4_capacity_groups, step.c4_groups, kRatioC4);
    check_group_capacity(op, "positions_c128", p.c128_capacity_groups, step.c128_groups, kRatioC128);
    const int64_t raw_pages = pages_for(step.longest, p.page_shift);
    check_pages(op, "swa_page_table", p.swa_row_elems, p.swa_columns_pages, raw_pages);
    check_pages(op, "c4_page_table", p.c4_row_elems, p.c4_columns_pages,
                pages_for(groups_in(step.longest, kRatioC4), p.page_shift));
    check_pages(op, "c128_page_table", p.c128_row_elems, p.c128_columns_pages,
                pages_for(groups_in(step.longest, kRatioC128), p.page_shift));
    check_pages(op, "c4_state_page_table", p.c4_state_row_elems, p.c4_state_columns_pages, raw_pages);
    check_pages(op, "c128_state_page_table", p.c128_state_row_elems, p.c128_state_columns_pages, raw_pages);
}

void write_step_metadata(const ScannedStep& step, const StepMetadataParams& p, const MetadataTables& tables,
                         const MetadataTensors& out) {
    write_row_vectors(step, out);
    write_positions(step, out.positions);
    write_group_positions<kRatioC4>(step, out.positions_c4);
    write_group_positions<kRatioC128>(step, out.positions_c128);
    write_group_slots<kRatioC4>(step, tables.c4, p.c4_row_elems, out.c4_loc);
    write_group_slots<kRatioC128>(step, tables.c128, p.c128_row_elems, out.c128_loc);
    write_page_tables(step, p, tables, out);
}

}  // namespace dsv4::cpu
