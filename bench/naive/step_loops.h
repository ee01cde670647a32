// Loops over a step's rows for the naive step kernels: each block takes a share of the rows and writes what they bring,
// element by element. Bad rows are not handled.
#pragma once

#include "common/page_spans.h"
#include "common/step_launch.h"
#include "scalar_run.h"

namespace dsv4::naive {

class StepLoops {
  public:
    __aicore__ inline StepLoops(AscendC::TPipe* pipe, GM_ADDR requests, GM_ADDR lengths, GM_ADDR operands,
                                const StepRowsParams& p)
        : p_(p), requests_(requests), lengths_(lengths), operands_(operands), values_(pipe), wide_values_(pipe) {
        own_ = block_share(p.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        last_ = AscendC::GetBlockIdx() == AscendC::GetBlockNum() - 1;
        for (int64_t i = 0; i < own_.begin; ++i) {
            tokens_before_ += row(i).token_width;
            groups_before_[0] += num_groups(row(i), kRatioC4);
            groups_before_[1] += num_groups(row(i), kRatioC128);
        }
    }

    // start_pos, seqused, kv_lens [B], cu_seqlens [B + 1]
    __aicore__ inline void row_vectors(GM_ADDR start_pos, GM_ADDR seqused, GM_ADDR kv_lens, GM_ADDR cu_seqlens) {
        each_row(start_pos, [](const StepRow& row) { return row.start; });
        each_row(seqused, [](const StepRow& row) { return row.num_new; });
        each_row(kv_lens, [](const StepRow& row) { return kv_length(row); });
        values_.begin(cu_seqlens, own_.begin);
        int64_t tokens = tokens_before_;
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            values_.push(static_cast<int32_t>(tokens));
            tokens += row(i).token_width;
        }
        if (last_) {
            values_.push(static_cast<int32_t>(tokens));
        }
        values_.end();
    }

    // int64 positions of tokens (ratio 1) or groups
    template <int64_t ratio>
    __aicore__ inline void positions(GM_ADDR out, int64_t entries) {
        wide_values_.begin(out, before<ratio>());
        each_entry<ratio>(entries, [this](int64_t, int64_t unit) {
            wide_values_.push(unit < 0 ? 0 : group_position(unit, ratio));
        });
        wide_values_.end();
    }

    // int32 slots of tokens (ratio 1) or groups
    template <int64_t ratio>
    __aicore__ inline void slots(GM_ADDR table, int64_t row_elems, GM_ADDR out, int64_t entries) {
        if (!pool_exists(row_elems)) {
            return;
        }
        values_.begin(out, before<ratio>());
        each_entry<ratio>(entries, [&](int64_t i, int64_t unit) {
            values_.push(unit < 0 ? 0 : table_entry(table, row_elems, i, unit));
        });
        values_.end();
    }

    __aicore__ inline void page_table(int32_t pool, GM_ADDR table, GM_ADDR out, const StepMetadataParams& p) {
        const PageTableShape shape = page_table_shape(pool, p);
        if (!pool_exists(shape.row_elems)) {
            return;
        }
        values_.begin(out, own_.begin * shape.columns);
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            const PageSpan span = page_span(pool, row(i), p);
            for (int64_t page = 0; page < shape.columns; ++page) {
                if (page >= span.begin && page < span.end) {
                    const int64_t unit = first_unit_of_page(page, p.page_shift);
                    values_.push(table_entry(table, shape.row_elems, i, unit) >> p.page_shift);
                } else if (pool == kSwa && page == 0 && is_padding(row(i))) {
                    values_.push(kSkipPage);
                } else {
                    values_.push(is_state_pool(pool) ? kSkipPage : kNoPage);
                }
            }
        }
        values_.end();
    }

    // float32 rows of one RoPE table at the groups' positions, moved as bits
    template <int64_t ratio>
    __aicore__ inline void rope_rows(GM_ADDR table, int64_t max_pos, int64_t dim, GM_ADDR out, int64_t entries) {
        values_.begin(out, before<ratio>() * dim);
        each_entry<ratio>(entries, [&](int64_t, int64_t unit) {
            const int64_t position = unit < 0 ? 0 : group_position(unit, ratio);
            for (int64_t d = 0; d < dim; ++d) {
                values_.push(element<int32_t>(table, max_pos * dim, position * dim + d));
            }
        });
        values_.end();
    }

  private:
    __aicore__ inline StepRow row(int64_t i) {
        const int64_t operand =
            form_has_operand(p_.form) ? integer(operands_, p_.operand_is_int64, p_.num_rows, i) : 0;
        return row_step(p_.form, integer(lengths_, p_.length_is_int64, p_.num_rows, i), operand, p_.width);
    }

    __aicore__ inline int32_t table_entry(GM_ADDR table, int64_t row_elems, int64_t i, int64_t unit) {
        const int64_t request = integer(requests_, p_.request_is_int64, p_.num_rows, i);
        return element<int32_t>(table, p_.max_requests * row_elems, request * row_elems + unit);
    }

    template <int64_t ratio>
    __aicore__ inline int64_t before() const {
        return ratio == 1 ? tokens_before_ : groups_before_[ratio == kRatioC4 ? 0 : 1];
    }

    template <typename Value>
    __aicore__ inline void each_row(GM_ADDR out, const Value& value) {
        values_.begin(out, own_.begin);
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            values_.push(static_cast<int32_t>(value(row(i))));
        }
        values_.end();
    }

    // visit(row, unit) for each token or group of the block's rows, unit -1 for a padding token; the last block goes on
    // to the end of the output.
    template <int64_t ratio, typename Visit>
    __aicore__ inline void each_entry(int64_t entries, const Visit& visit) {
        int64_t entry = before<ratio>();
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            const StepRow now = row(i);
            const int64_t units = ratio == 1 ? now.token_width : num_groups(now, ratio);
            for (int64_t unit = 0; unit < units; ++unit, ++entry) {
                visit(i, is_padding(now) ? -1 : first_group(now, ratio) + unit);
            }
        }
        for (; last_ && entry < entries; ++entry) {
            visit(0, -1);
        }
    }

    const StepRowsParams& p_;
    GM_ADDR requests_;
    GM_ADDR lengths_;
    GM_ADDR operands_;
    ScalarRun<int32_t> values_;
    ScalarRun<int64_t> wide_values_;
    BlockShare own_{0, 0};
    bool last_ = false;
    int64_t tokens_before_ = 0;
    int64_t groups_before_[2] = {0, 0};
};

}  // namespace dsv4::naive
