#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>

#include "cpu/pool_slots.h"
#include "cpu/rows_per_thread.h"
#include "ops/advance_step/advance_step.h"

namespace dsv4 {
namespace {

// Bytes copied below which a second thread costs more than it copies.
constexpr int64_t kBytesPerThread = 1 << 20;

int64_t read(const at::Tensor& values, int32_t is_int64, int64_t index) {
    return is_int64 ? static_cast<const int64_t*>(values.const_data_ptr())[index]
                    : static_cast<const int32_t*>(values.const_data_ptr())[index];
}

// Writes an output that is asked for.
void write(const at::Tensor& values, int64_t index, int64_t value) {
    if (!values.defined()) {
        return;
    }
    if (values.scalar_type() == at::kLong) {
        static_cast<int64_t*>(values.mutable_data_ptr())[index] = value;
    } else {
        static_cast<int32_t*>(values.mutable_data_ptr())[index] = static_cast<int32_t>(value);
    }
}

struct RowReader {
    const AdvanceTensors& t;
    const AdvanceStepParams& p;

    VerifiedRow operator()(int64_t i) const {
        const bool ragged = p.has_cu_seqlens != 0;
        return VerifiedRow{p.has_requests ? read(t.req_pool_indices, p.request_is_int64, i) : i,
                           read(t.seq_lens, p.length_is_int64, i),
                           count(i),
                           p.has_drafts ? read(t.num_draft_tokens, p.drafts_is_int64, i) : 0,
                           ragged ? read(t.cu_seqlens, 0, i) : i * p.width,
                           ragged ? read(t.cu_seqlens, 0, i + 1) : (i + 1) * p.width};
    }

    int64_t count(int64_t i) const {
        if (p.num_samples == 0) {
            return read(t.accepted_lens, p.accepted_is_int64, i);
        }
        return valid_samples(p.num_samples,
                             [&](int64_t j) { return read(t.token_ids, p.token_is_int64, i * p.num_samples + j); });
    }

    // The newest token of a row that is no padding.
    int64_t token(int64_t i, const VerifiedRow& row, const AdvancedRow& next) const {
        if (row.count == 0) {
            return p.has_backup ? read(t.backup_tokens, p.token_is_int64, i) : 0;
        }
        const int64_t at = p.num_samples == 0 ? sampled_token(row, next) : i * p.num_samples + row.count - 1;
        return read(t.token_ids, p.token_is_int64, at);
    }
};

std::string describe_tokens(int64_t i, const VerifiedRow& row, const AdvanceStepParams& p) {
    if (!p.has_cu_seqlens) {
        return c10::str("seq_lens[", i, "] is ", row.seq_len, ", expected at least ", p.width,
                        " (tokens of the row, which it counts)");
    }
    return c10::str("cu_seqlens[", i, "] and the next are ", row.first_token, " and ", row.end_token,
                    ", expected an interval of the ", p.num_tokens, " tokens",
                    p.lengths_are_final ? c10::str(" of at most ", row.seq_len, " (seq_lens counts them)") : "");
}

std::string describe(int32_t fault, int64_t i, const VerifiedRow& row, const AdvanceStepParams& p) {
    const std::string length = c10::str("seq_lens[", i, "] is ", row.seq_len);
    switch (fault) {
        case kAdvanceNegativeLength:
            return length + ", expected at least 0";
        case kAdvanceBadTokens:
            return describe_tokens(i, row, p);
        case kAdvanceBadDrafts:
            return c10::str("num_draft_tokens[", i, "] is ", row.drafts, ", expected 0, or less than ", width_of(row),
                            " (tokens of the row)");
        case kAdvanceBadAccepted:
            return c10::str(p.num_samples == 0 ? "accepted_lens[" : "number of samples in token_ids[", i, "] is ",
                            row.count, ", expected 0 to ", most_accepted(row, p),
                            p.has_drafts ? " (drafts and one more)" : " (tokens of the row)");
        case kAdvanceBeyondContext:
            return row.seq_len > p.max_context_len
                       ? c10::str(length, ", expected at most ", p.max_context_len, " (max_context_len)")
                       : c10::str(length, " before ", advanced_row(row, p).accepted,
                                  " accepted tokens, expected at most ", p.max_context_len,
                                  " (max_context_len) with them");
        default:
            return p.has_requests ? c10::str("req_pool_indices[", i, "] is ", row.request, ", expected 0 <= index < ",
                                             p.max_requests, " (rows of the tables)")
                                  : c10::str("seq_lens has tokens in row ", i, ", expected at most ", p.max_requests,
                                             " rows (those of the tables)");
    }
}

// hidden: [T, row_bytes]; next: [B, row_bytes].
void copy_hidden(const RowReader& rows, const AdvanceStepParams& p, const char* hidden, char* next) {
    const int64_t row_bytes = 2 * p.hidden_row_halves;
    at::parallel_for(0, p.num_rows, cpu::rows_per_thread(kBytesPerThread, row_bytes), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const VerifiedRow row = rows(i);
            const AdvancedRow advanced = advanced_row(row, p);
            if (advanced.accepted != 0) {
                std::copy_n(hidden + sampled_token(row, advanced) * row_bytes, row_bytes, next + i * row_bytes);
            } else {
                std::fill_n(next + i * row_bytes, row_bytes, 0);
            }
        }
    });
}

void run(const AdvanceStepParams& p, const AdvanceTensors& t) {
    const RowReader rows{t, p};
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const VerifiedRow row = rows(i);
        const int32_t fault = advance_fault(row, p);
        TORCH_CHECK_VALUE(fault == kAdvanceValid, "advance_step: ", describe(fault, i, row, p));
    }
    if (p.hidden_row_halves != 0) {
        copy_hidden(rows, p, static_cast<const char*>(t.hidden_states.const_data_ptr()),
                    static_cast<char*>(t.fields[kAdvancedHidden].mutable_data_ptr()));
    }
    const cpu::PoolSlots slots(p.pools, t.tables);
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const VerifiedRow row = rows(i);  // before its length is overwritten, if that happens in place
        const AdvancedRow next = advanced_row(row, p);
        const bool drafts = can_draft(next, p);
        write(t.fields[kAdvancedTokens], i, is_padding(row) ? 0 : rows.token(i, row, next));
        write(t.fields[kAdvancedExtend], i, next.accepted);
        write(t.fields[kAdvancedPositions], i, drafts ? advanced_length(next) : 0);
        write(t.fields[kAdvancedSampled], i, next.accepted != 0 ? sampled_token(row, next) : 0);
        write(t.fields[kAdvancedCounts], i, is_padding(row) ? 0 : row.count);
        write(t.fields[kAdvancedRejected], i, next.rejected);
        for (const int32_t pool : {kFull, kSwa}) {
            if (wants(p, kAdvancedFullSlots + pool)) {
                const int64_t slot = drafts ? slots.slot(pool, row.request, advanced_length(next)) : cpu::kNoSlot;
                write(t.fields[kAdvancedFullSlots + pool], i, slot == cpu::kNoSlot ? p.dummy_slots[pool] : slot);
            }
        }
        write(t.fields[kAdvancedLengths], i, advanced_length(next));
    }
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_advance_step<&run>(m); }

}  // namespace dsv4
