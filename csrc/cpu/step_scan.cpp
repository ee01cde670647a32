#include "cpu/step_scan.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <string>

namespace dsv4::cpu {
namespace {

struct RowReader {
    const void* requests;  // [B]
    const void* lengths;   // [B]
    const void* operands;  // [B], null when the form has none
    const StepRowsParams& p;

    static int64_t read(const void* values, int32_t is_int64, int64_t row) {
        return is_int64 ? static_cast<const int64_t*>(values)[row] : static_cast<const int32_t*>(values)[row];
    }
    int64_t request(int64_t row) const { return read(requests, p.request_is_int64, row); }
    int64_t length(int64_t row) const { return read(lengths, p.length_is_int64, row); }
    int64_t operand(int64_t row) const { return operands == nullptr ? 0 : read(operands, p.operand_is_int64, row); }
};

std::string describe(int32_t fault, int64_t row, const RowReader& reader) {
    const StepRowsParams& p = reader.p;
    const int64_t length = reader.length(row);
    const int64_t operand = reader.operand(row);
    const auto of_length = c10::str("seq_lens[", row, "] is ", length);
    switch (fault) {
        case kNegativeLength:
            return of_length + ", expected at least 0";
        case kNegativeOperand:
            return c10::str(p.form == kPrefill ? "prefix_lens[" : "num_draft_tokens[", row, "] is ", operand,
                            ", expected at least 0");
        case kPrefixBeyondLength:
            return c10::str(of_length, ", expected at least prefix_lens[", row, "] = ", operand);
        case kBeyondContext: {
            const int64_t num_new = row_step(p.form, length, operand, p.width).num_new;
            const bool included = p.form == kPrefill || p.form == kDecode;
            return c10::str(of_length, included ? " with " : " before ", num_new, " new tokens, expected at most ",
                            p.max_context_len, " (max_context_len) with them");
        }
        case kBeyondMaxSeqLen:
            return c10::str("max_seq_len is ", p.max_seq_len, ", expected at least ",
                            final_length(row_step(p.form, length, operand, p.width)), " (tokens of row ", row,
                            " after the step)");
        default:
            return c10::str("req_pool_indices[", row, "] is ", reader.request(row), ", expected 0 <= index < ",
                            p.max_requests, " (rows of the tables)");
    }
}

void add_row(ScannedStep& step, const StepRow& row, int64_t request) {
    ScannedRow scanned;
    static_cast<StepRow&>(scanned) = row;
    scanned.request = request;
    scanned.token_begin = step.num_tokens;
    step.rows.push_back(scanned);
    step.num_tokens += row.token_width;
    step.longest = max_of(step.longest, final_length(row));
    const int64_t c4_end = last_group(row, kRatioC4);
    const int64_t c4_groups = c4_end - first_group(row, kRatioC4);
    step.c4_groups += c4_groups;
    step.c128_groups += last_group(row, kRatioC128) - first_group(row, kRatioC128);
    if (c4_groups > 0) {
        step.group_positions_end = max_of(step.group_positions_end, group_position(c4_end - 1, kRatioC4) + 1);
    }
}

}  // namespace

ScannedStep scan_step(const char* op, const StepRowsParams& p, const StepInputs& inputs) {
    const std::optional<at::Tensor>& operand = inputs.operand();
    const RowReader reader{inputs.req_pool_indices.const_data_ptr(), inputs.seq_lens.const_data_ptr(),
                           form_has_operand(p.form) ? operand->const_data_ptr() : nullptr, p};
    ScannedStep step;
    step.rows.reserve(p.num_rows);
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const int64_t request = reader.request(i);
        const int32_t fault = row_fault(p, request, reader.length(i), reader.operand(i));
        TORCH_CHECK_VALUE(fault == kRowValid, op, ": ", describe(fault, i, reader));
        const StepRow row = row_step(p.form, reader.length(i), reader.operand(i), p.width);
        TORCH_CHECK_VALUE(row.token_width <= p.num_tokens - step.num_tokens, op, ": num_tokens is ", p.num_tokens,
                          " (entries of the token-aligned outputs), but row ", i, " ends at token ", step.num_tokens,
                          " + ", row.token_width);
        add_row(step, row, is_padding(row) ? 0 : request);
    }
    return step;
}

}  // namespace dsv4::cpu
