#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>

#include "cpu/integers.h"
#include "cpu/pool_slots.h"
#include "cpu/rows_per_thread.h"
#include "ops/advance_step/advance_step.h"

namespace dsv4 {
namespace {

// Bytes copied below which a second thread costs more than it copies.
constexpr int64_t kBytesPerThread = 1 << 20;

class RowReader {
  public:
    RowReader(const AdvanceTensors& t, const AdvanceStepParams& p)
        : p_(p),
          requests_(t.req_pool_indices),
          lengths_(t.seq_lens),
          accepted_(t.accepted_lens),
          drafts_(t.num_draft_tokens),
          offsets_(t.cu_seqlens),
          tokens_(t.token_ids),
          backup_(t.backup_tokens) {}

    VerifiedRow operator()(int64_t i) const {
        const bool ragged = p_.has_cu_seqlens != 0;
        return VerifiedRow{p_.has_requests ? requests_[i] : i,
                           lengths_[i],
                           count(i),
                           p_.has_drafts ? drafts_[i] : 0,
                           ragged ? offsets_[i] : i * p_.width,
                           ragged ? offsets_[i + 1] : (i + 1) * p_.width};
    }

    // The newest token of a row that is no padding.
    int64_t token(int64_t i, const VerifiedRow& row, const AdvancedRow& next) const {
        if (row.count == 0) {
            return p_.has_backup ? backup_[i] : 0;
        }
        return tokens_[p_.num_samples == 0 ? sampled_token(row, next) : i * p_.num_samples + row.count - 1];
    }

  private:
    int64_t count(int64_t i) const {
        return p_.num_samples == 0
                   ? accepted_[i]
                   : valid_samples(p_.num_samples, [&](int64_t j) { return tokens_[i * p_.num_samples + j]; });
    }

    const AdvanceStepParams& p_;
    cpu::IntegerInput requests_;
    cpu::IntegerInput lengths_;
    cpu::IntegerInput accepted_;
    cpu::IntegerInput drafts_;
    cpu::IntegerInput offsets_;
    cpu::IntegerInput tokens_;
    cpu::IntegerInput backup_;
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

struct ScannedRow {
    VerifiedRow row;
    AdvancedRow next;
};

// Every row, read before anything is written: lengths may change in place.
c10::SmallVector<ScannedRow, 64> scan(const RowReader& rows, const AdvanceStepParams& p) {
    c10::SmallVector<ScannedRow, 64> scanned(p.num_rows);
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const VerifiedRow row = rows(i);
        const int32_t fault = advance_fault(row, p);
        TORCH_CHECK_VALUE(fault == kAdvanceValid, "advance_step: ", describe(fault, i, row, p));
        scanned[i] = {row, advanced_row(row, p)};
    }
    return scanned;
}

// hidden: [T, row_bytes]; next: [B, row_bytes].
void copy_hidden(at::ArrayRef<ScannedRow> rows, const AdvanceStepParams& p, const char* hidden, char* next) {
    const int64_t row_bytes = 2 * p.hidden_row_halves;
    at::parallel_for(0, p.num_rows, cpu::rows_per_thread(kBytesPerThread, row_bytes), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const auto& [row, advanced] = rows[i];
            if (advanced.accepted != 0) {
                std::copy_n(hidden + sampled_token(row, advanced) * row_bytes, row_bytes, next + i * row_bytes);
            } else {
                std::fill_n(next + i * row_bytes, row_bytes, 0);
            }
        }
    });
}

void run(const AdvanceStepParams& p, const AdvanceTensors& t) {
    const RowReader rows(t, p);
    const auto scanned = scan(rows, p);
    if (p.hidden_row_halves != 0) {
        copy_hidden(scanned, p, static_cast<const char*>(t.hidden_states.const_data_ptr()),
                    static_cast<char*>(t.fields[kAdvancedHidden].mutable_data_ptr()));
    }
    const auto write = [&](int32_t field, const auto& value_of) {
        cpu::IntegerOutput(t.fields[field]).write(p.num_rows, [&](int64_t i) {
            return value_of(scanned[i].row, scanned[i].next, i);
        });
    };
    write(kAdvancedTokens, [&](const VerifiedRow& row, const AdvancedRow& next, int64_t i) {
        return is_padding(row) ? 0 : rows.token(i, row, next);
    });
    write(kAdvancedExtend, [](const VerifiedRow&, const AdvancedRow& next, int64_t) { return next.accepted; });
    write(kAdvancedPositions, [&](const VerifiedRow&, const AdvancedRow& next, int64_t) {
        return can_draft(next, p) ? advanced_length(next) : 0;
    });
    write(kAdvancedSampled, [](const VerifiedRow& row, const AdvancedRow& next, int64_t) {
        return next.accepted != 0 ? sampled_token(row, next) : 0;
    });
    write(kAdvancedCounts,
          [](const VerifiedRow& row, const AdvancedRow&, int64_t) { return is_padding(row) ? 0 : row.count; });
    write(kAdvancedRejected, [](const VerifiedRow&, const AdvancedRow& next, int64_t) { return next.rejected; });
    const cpu::PoolSlots slots(p.pools, t.tables);
    for (const int32_t pool : {kFull, kSwa}) {
        write(kAdvancedFullSlots + pool, [&](const VerifiedRow& row, const AdvancedRow& next, int64_t) {
            const int64_t slot =
                can_draft(next, p) ? slots.slot(pool, row.request, advanced_length(next)) : cpu::kNoSlot;
            return slot == cpu::kNoSlot ? p.dummy_slots[pool] : slot;
        });
    }
    write(kAdvancedLengths, [](const VerifiedRow&, const AdvancedRow& next, int64_t) { return advanced_length(next); });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_advance_step<&run>(m); }

}  // namespace dsv4
