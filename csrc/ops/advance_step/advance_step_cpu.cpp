#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>

#include <cstring>
#include <string>

#include "ops/advance_step/advance_step.h"

namespace dsv4 {
namespace {

// Bytes copied below which a second thread costs more than it copies.
constexpr int64_t kBytesPerThread = 1 << 20;

int64_t read(const void* values, int32_t is_int64, int64_t index) {
    return is_int64 ? static_cast<const int64_t*>(values)[index] : static_cast<const int32_t*>(values)[index];
}

void write(void* values, int32_t is_int64, int64_t index, int64_t value) {
    if (is_int64) {
        static_cast<int64_t*>(values)[index] = value;
    } else {
        static_cast<int32_t*>(values)[index] = static_cast<int32_t>(value);
    }
}

struct RowReader {
    const void* requests;       // [B]
    const void* lengths;        // [B]
    const void* accepted;       // [B]
    const int32_t* cu_seqlens;  // [B + 1], null for rows of equal width
    const AdvanceStepParams& p;

    VerifiedRow operator()(int64_t i) const {
        const bool ragged = cu_seqlens != nullptr;
        return VerifiedRow{read(requests, p.request_is_int64, i), read(lengths, p.length_is_int64, i),
                           read(accepted, p.accepted_is_int64, i), ragged ? cu_seqlens[i] : i * p.width,
                           ragged ? cu_seqlens[i + 1] : (i + 1) * p.width};
    }
};

std::string describe(int32_t fault, int64_t i, const VerifiedRow& row, const AdvanceStepParams& p) {
    const std::string length = c10::str("seq_lens[", i, "] is ", row.length);
    switch (fault) {
        case kAdvanceNegativeLength:
            return length + ", expected at least 0";
        case kAdvanceBadTokens:
            return c10::str("cu_seqlens[", i, "] and the next are ", row.first_token, " and ", row.end_token,
                            ", expected an interval of the ", p.num_tokens, " token_ids");
        case kAdvanceBadAccepted:
            return c10::str("accepted_lens[", i, "] is ", row.accepted, ", expected 0 to ",
                            row.end_token - row.first_token, " (tokens of the row)");
        case kAdvanceBeyondContext:
            return c10::str(length, " before ", row.accepted, " accepted tokens, expected at most ", p.max_context_len,
                            " (max_context_len) with them");
        default:
            return c10::str("req_pool_indices[", i, "] is ", row.request, ", expected 0 <= index < ", p.max_requests,
                            " (rows of the tables)");
    }
}

// hidden: [T, row_bytes]; next: [B, row_bytes].
void copy_hidden(const RowReader& rows, const AdvanceStepParams& p, const char* hidden, char* next) {
    const int64_t row_bytes = 2 * p.hidden_row_halves;
    at::parallel_for(0, p.num_rows, 1 + kBytesPerThread / (row_bytes + 1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const VerifiedRow row = rows(i);
            if (has_accepted(row)) {
                std::memcpy(next + i * row_bytes, hidden + sampled_token(row) * row_bytes, row_bytes);
            } else {
                std::memset(next + i * row_bytes, 0, row_bytes);
            }
        }
    });
}

void run(const AdvanceStepParams& p, const AdvanceInputs& inputs, const AdvanceOutputs& out) {
    const RowReader rows{inputs.req_pool_indices.const_data_ptr(), inputs.seq_lens.const_data_ptr(),
                         inputs.accepted_lens.const_data_ptr(),
                         p.has_cu_seqlens ? inputs.cu_seqlens->const_data_ptr<int32_t>() : nullptr, p};
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const VerifiedRow row = rows(i);
        const int32_t fault = advance_fault(row, p);
        TORCH_CHECK_VALUE(fault == kAdvanceValid, "advance_step: ", describe(fault, i, row, p));
    }
    if (p.hidden_row_halves != 0) {
        copy_hidden(rows, p, static_cast<const char*>(inputs.hidden_states->const_data_ptr()),
                    static_cast<char*>(out.next_hidden->mutable_data_ptr()));
    }
    const void* tokens = inputs.token_ids.const_data_ptr();
    void* next_lens = out.next_seq_lens.mutable_data_ptr();
    void* next_tokens = out.next_token_ids.mutable_data_ptr();
    int32_t* extend = out.extend_lens.mutable_data_ptr<int32_t>();
    int64_t* positions = out.positions.mutable_data_ptr<int64_t>();
    int64_t* sampled = out.sampled_index.mutable_data_ptr<int64_t>();
    const int32_t* full_table = inputs.full_table.const_data_ptr<int32_t>();
    const int32_t* swa_table = inputs.swa_table.const_data_ptr<int32_t>();
    int32_t* full_slots = out.out_full_loc.mutable_data_ptr<int32_t>();
    int32_t* swa_slots = out.out_swa_loc.mutable_data_ptr<int32_t>();
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const VerifiedRow row = rows(i);  // before its length is overwritten, if that happens in place
        const bool accepted = has_accepted(row);
        const bool drafts = can_draft(row, p);
        write(next_lens, p.length_is_int64, i, advanced_length(row));
        extend[i] = static_cast<int32_t>(extend_width(row));
        write(next_tokens, p.token_is_int64, i, accepted ? read(tokens, p.token_is_int64, sampled_token(row)) : 0);
        positions[i] = drafts ? advanced_length(row) : 0;
        sampled[i] = accepted ? sampled_token(row) : 0;
        if (pool_exists(p.full_row_elems)) {
            full_slots[i] = drafts ? full_table[draft_slot_offset_elems(row, p.full_row_elems)] : 0;
        }
        if (pool_exists(p.swa_row_elems)) {
            swa_slots[i] = drafts ? swa_table[draft_slot_offset_elems(row, p.swa_row_elems)] : 0;
        }
    }
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_advance_step<&run>(m); }

}  // namespace dsv4
