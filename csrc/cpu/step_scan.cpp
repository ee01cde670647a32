#include "cpu/step_scan.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <limits>
#include <string>

namespace dsv4::cpu {
namespace {

struct RowReader {
    const void* requests;  // [B], null when rows are their own requests
    const void* lengths;   // [B]
    const void* operands;  // [B], or [B + 1] offsets; null when the form has none
    const StepRowsParams& p;

    static int64_t read(const void* values, int32_t is_int64, int64_t row) {
        return is_int64 ? static_cast<const int64_t*>(values)[row] : static_cast<const int32_t*>(values)[row];
    }
    int64_t request(int64_t row) const {
        return requests == nullptr ? row : read(requests, p.request_is_int64, row);
    }
    int64_t length(int64_t row) const { return read(lengths, p.length_is_int64, row); }
    int64_t offset(int64_t row) const { return read(operands, p.operand_is_int64, row); }
    // The offsets up to the row's own are 0 or more and do not decrease; a smaller next one gives a negative operand.
    int64_t operand(int64_t row) const {
        return operands == nullptr       ? 0
               : p.form == kFinalOffsets ? max_of<int64_t>(offset(row + 1), -1) - offset(row)
                                         : offset(row);
    }
};

std::string describe_operand(int64_t row, const RowReader& reader) {
    if (reader.p.form == kFinalOffsets) {
        return c10::str("cu_seqlens[", row + 1, "] is ", reader.offset(row + 1), ", expected at least cu_seqlens[", row,
                        "] = ", reader.offset(row));
    }
    return c10::str(step_operand_name(reader.p.form), "[", row, "] is ", reader.offset(row), ", expected at least 0");
}

// The first page table that does not cover a row.
std::string describe_columns(int64_t row, const StepRow& step_row, const StepParams& p) {
    const int64_t length = final_length(step_row);
    int32_t pool = 0;
    int64_t needed = 0;
    for (; pool < kNumPools; ++pool) {
        needed = pages_for(units_in(length, pool), p.pools[pool].page_shift);
        if (p.page_columns[pool] != 0 && needed > p.page_columns[pool]) {
            break;
        }
    }
    return c10::str(kStepFieldNames[kFieldPageTable + pool], " has ", p.page_columns[pool],
                    " columns, expected at least ", needed, " (pages of row ", row, ", which has ", length, " tokens after the step)");
}

std::string describe(int32_t fault, int64_t row, const RowReader& reader, const StepParams& params) {
    const StepRowsParams& p = reader.p;
    const int64_t length = reader.length(row);
    const int64_t operand = reader.operand(row);
    const auto of_length = c10::str("seq_lens[", row, "] is ", length);
    switch (fault) {
        case kNegativeLength:
            return of_length + ", expected at least 0";
        case kNegativeOperand:
            return describe_operand(row, reader);
        case kShorterThanOperand:
            return p.form == kPrefill
                       ? c10::str(of_length, ", expected at least prefix_lens[", row, "] = ", operand)
                       : c10::str(of_length, ", expected at least its ", form_has_operand(p.form) ? operand : p.width,
                                  " new tokens");
        case kBeyondContext:
            return c10::str(of_length, form_is_final(p.form) ? " with " : " before ",
                            row_step(p.form, length, operand, p.width).num_new, " new tokens, expected at most ",
                            p.max_context_len, " (max_context_len) with them");
        case kBeyondMaxSeqLen:
            return describe_columns(row, row_step(p.form, length, operand, p.width), params);
        default:
            return p.has_requests ? c10::str("req_pool_indices[", row, "] is ", reader.request(row),
                                             ", expected 0 <= index < ", p.max_requests, " (rows of the tables)")
                                  : c10::str("seq_lens has tokens in row ", row, ", expected at most ", p.max_requests,
                                             " rows (those of the tables)");
    }
}

// Written member by member where it stays: a copy would wait for what was just written.
void add_row(ScannedStep& step, int64_t i, const StepRow& row, int64_t request) {
    ScannedRow& scanned = step.rows[i];
    static_cast<StepRow&>(scanned) = row;
    scanned.request = request;
    scanned.token_begin = step.num_tokens;
    step.num_tokens += row.token_width;
    step.tokens_end = max_of(step.tokens_end, final_length(row));
    for (int32_t which = 0; which < 2; ++which) {
        const int64_t groups = num_groups(row, ratio_of(which));
        if (groups > 0) {
            step.groups[which] += groups;
            const int64_t position = group_position(last_group(row, ratio_of(which)) - 1, ratio_of(which));
            step.positions_end[which] = max_of(step.positions_end[which], position + 1);
        }
    }
}

}  // namespace

ScannedStep scan_step(const char* op, const StepParams& params, const StepTensors& tensors) {
    const StepRowsParams& p = params.rows;
    const RowReader reader{p.has_requests ? tensors.req_pool_indices.const_data_ptr() : nullptr,
                           tensors.seq_lens.const_data_ptr(),
                           form_has_operand(p.form) ? tensors.operand.const_data_ptr() : nullptr, p};
    TORCH_CHECK_VALUE(p.form != kFinalOffsets || reader.offset(0) == 0, op, ": cu_seqlens[0] is ", reader.offset(0),
                      ", expected 0");
    ScannedStep step;
    step.rows.resize(p.num_rows);
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const int64_t request = reader.request(i);
        const int64_t length = reader.length(i);
        const int64_t operand = reader.operand(i);
        const int32_t fault = row_fault(p, request, length, operand);
        TORCH_CHECK_VALUE(fault == kRowValid, op, ": ", describe(fault, i, reader, params));
        const StepRow row = row_step(p.form, length, operand, p.width);
        TORCH_CHECK_VALUE(row.token_width <= p.num_tokens - step.num_tokens, op, ": num_tokens is ", p.num_tokens,
                          " (entries of the token-aligned outputs), but row ", i, " ends at token ", step.num_tokens,
                          " + ", row.token_width);
        add_row(step, i, row, is_padding(row) ? 0 : request);
    }
    return step;
}

ScannedStep scan_host_rows(const char* op, const StepRowArguments& rows) {
    // Everything that is sized from the results is int32.
    constexpr int32_t kMaxLength = std::numeric_limits<int32_t>::max();
    StepTensors tensors;
    StepParams p{};
    p.rows = check_step_rows(op, rows, tensors);
    p.rows.num_tokens = kMaxLength;
    p.rows.max_context_len = kMaxLength;
    p.rows.max_seq_len = kMaxLength;
    // Any row will do: requests do not matter here.
    p.rows.max_requests = kMaxLength;
    return scan_step(op, p, tensors);
}

}  // namespace dsv4::cpu
