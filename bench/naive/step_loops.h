// Loops over a step's rows for the naive kernel of a step: each block takes a share of the rows and writes what they bring,
// element by element. Tables are of pages; bad rows, int64 slots and offsets of rows are not handled.
#pragma once

#include "ops/step/step_stages.h"
#include "page_slots.h"

namespace dsv4::naive {

class StepLoops {
  public:
    __aicore__ inline StepLoops(AscendC::TPipe* pipe, const StepAddresses& memory, const StepParams& p)
        : p_(p), memory_(memory), table_(p.pools, memory.tables), values_(pipe), wide_values_(pipe) {
        own_ = block_share(p.rows.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        last_ = AscendC::GetBlockIdx() == AscendC::GetBlockNum() - 1;
        for (int64_t i = 0; i < own_.begin; ++i) {
            count(row(i), before_);
        }
    }

    // start_pos, seqused, kv_lens [B], cu_seqlens [B + 1], num_groups [2]
    __aicore__ inline void row_vectors() {
        each_row(kFieldStartPos, [](const StepRow& row) { return row.start; });
        each_row(kFieldSeqUsed, [](const StepRow& row) { return row.num_new; });
        each_row(kFieldKvLens, [](const StepRow& row) { return kv_length(row); });
        StepTotals totals = before_;
        each_row(kFieldCuSeqlens, [&](const StepRow& row) {
            const int64_t offset = totals.tokens;
            count(row, totals);
            return offset;
        });
        if (!last_) {
            return;
        }
        totals = before_;
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            count(row(i), totals);
        }
        if (wants(p_, kFieldCuSeqlens)) {
            values_.begin(out(kFieldCuSeqlens), p_.rows.num_rows);
            values_.push(static_cast<int32_t>(p_.rows.closes_cu_seqlens != 0 ? p_.rows.num_tokens : totals.tokens));
            values_.end();
        }
        if (wants(p_, kFieldNumGroups)) {
            values_.begin(out(kFieldNumGroups), 0);
            values_.push(static_cast<int32_t>(totals.groups[0]));
            values_.push(static_cast<int32_t>(totals.groups[1]));
            values_.end();
        }
    }

    // int64 positions of tokens (ratio 1) or groups
    template <int64_t ratio>
    __aicore__ inline void positions(int32_t field, int64_t entries) {
        if (!wants(p_, field)) {
            return;
        }
        wide_values_.begin(out(field), before<ratio>());
        each_entry<ratio>(entries, [this](int64_t, int64_t unit) {
            wide_values_.push(unit < 0 ? 0 : group_position(unit, ratio));
        });
        wide_values_.end();
    }

    // int32 slots of tokens (ratio 1) or groups
    template <int64_t ratio>
    __aicore__ inline void slots(int32_t pool, int64_t entries) {
        if (!wants(p_, kFieldSlots + pool)) {
            return;
        }
        values_.begin(out(kFieldSlots + pool), before<ratio>());
        each_entry<ratio>(entries, [&](int64_t i, int64_t unit) {
            const int32_t dummy = p_.dummy_slots[pool];
            values_.push(unit < 0 ? dummy : table_.slot(pool, request(i), unit, dummy));
        });
        values_.end();
    }

    __aicore__ inline void page_table(int32_t pool) {
        if (!wants(p_, kFieldPageTable + pool)) {
            return;
        }
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            const StepRow now = row(i);
            const PageSpan span = is_padding(now) ? PageSpan{0, 0} : page_span(pool, now, p_);
            values_.begin(out(kFieldPageTable + pool), i * p_.page_row_elems[pool]);
            for (int64_t page = 0; page < p_.page_columns[pool]; ++page) {
                const bool named = page >= span.begin && page < span.end;
                const bool idle = pool == kSwa && page == 0 && is_padding(now);
                values_.push(named ? table_.page(pool, request(i), page) : idle ? kPaddingPage : p_.dummy_pages[pool]);
            }
            values_.end();
        }
    }

    // Rows of RoPE tables at the positions of groups or of tokens (ratio 1), of whole 32-bit words
    template <int64_t ratio>
    __aicore__ inline void rope_rows(int32_t stage) {
        const RopeOutputs outputs = rope_outputs(stage);
        const uint64_t groups[2] = {memory_.rope_cos, memory_.rope_sin};
        for (int32_t i = 0; i < outputs.count; ++i) {
            rope_rows<ratio>(ratio == 1 ? memory_.token_rope[i] : groups[i], outputs.field + i, rope_row(p_, stage, i));
        }
    }

    // c4_state_locs or c128_state_locs: int32 [B, columns]
    template <int64_t ratio>
    __aicore__ inline void states() {
        constexpr int32_t which = ratio == kRatioC4 ? 0 : 1;
        const int32_t pool = kC4State + which;
        if (!wants(p_, kFieldC4StateLocs + which)) {
            return;
        }
        values_.begin(out(kFieldC4StateLocs + which), own_.begin * p_.state_columns[which]);
        for (int64_t i = own_.begin; i < own_.end; ++i) {
            const StepRow now = row(i);
            const TokenSpan tokens = state_tokens(now, which, p_);
            for (int64_t column = 0; column < p_.state_columns[which]; ++column) {
                const int64_t token = now.start - state_lead(ratio) + column;
                values_.push(token >= tokens.begin && token < tokens.end
                                 ? table_.slot(pool, request(i), token, p_.dummy_slots[pool])
                                 : p_.dummy_slots[pool]);
            }
        }
        values_.end();
    }

    // window_locs: int32 [rows * block, K]
    __aicore__ inline void windows() {
        if (!wants(p_, kFieldWindowLocs)) {
            return;
        }
        const BlockShare share = block_share(p_.window_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        values_.begin(out(kFieldWindowLocs), share.begin * p_.window_columns);
        for (int64_t line = share.begin; line < share.end; ++line) {
            const int64_t i = line / p_.window_block;
            const StepRow now = i < p_.rows.num_rows ? row(i) : StepRow{0, 0, 0};
            const TokenSpan tokens = window_tokens(now, p_);
            for (int64_t column = 0; column < p_.window_columns; ++column) {
                const int64_t token = tokens.begin + column;
                values_.push(token < tokens.end                    ? table_.slot(kSwa, request(i), token, kWindowEnd)
                             : is_padding(now) && column == 0 ? kIdleWindow
                                                              : kWindowEnd);
            }
        }
        values_.end();
    }

  private:
    __aicore__ inline GM_ADDR out(int32_t field) const { return kernel::at(memory_.fields[field]); }

    __aicore__ inline StepRow row(int64_t i) const {
        const StepRowsParams& rows = p_.rows;
        const int64_t operand =
            form_has_operand(rows.form)
                ? integer(kernel::at(memory_.operands), rows.operand_is_int64, rows.num_rows, i)
                : 0;
        const int64_t length = integer(kernel::at(memory_.lengths), rows.length_is_int64, rows.num_rows, i);
        return row_step(rows.form, length, operand, rows.width);
    }

    __aicore__ inline int64_t request(int64_t i) const {
        const StepRowsParams& rows = p_.rows;
        return rows.has_requests != 0
                   ? integer(kernel::at(memory_.requests), rows.request_is_int64, rows.num_rows, i)
                   : i;
    }

    __aicore__ inline static void count(const StepRow& row, StepTotals& totals) {
        totals.tokens += row.token_width;
        totals.groups[0] += num_groups(row, kRatioC4);
        totals.groups[1] += num_groups(row, kRatioC128);
    }

    template <int64_t ratio>
    __aicore__ inline int64_t before() const {
        return ratio == 1 ? before_.tokens : before_.groups[ratio == kRatioC4 ? 0 : 1];
    }

    template <typename Value>
    __aicore__ inline void each_row(int32_t field, const Value& value) {
        if (!wants(p_, field)) {
            return;
        }
        values_.begin(out(field), own_.begin);
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

    template <int64_t ratio>
    __aicore__ inline void rope_rows(uint64_t table, int32_t field, const RopeRow& rope) {
        if (!wants(p_, field)) {
            return;
        }
        const int64_t words = rope.bytes / 4;
        const int64_t entries = ratio == 1 ? p_.rows.num_tokens : p_.capacity_groups[ratio == kRatioC4 ? 0 : 1];
        values_.begin(out(field), before<ratio>() * words);
        each_entry<ratio>(entries, [&](int64_t, int64_t unit) {
            const int64_t position = unit < 0 ? 0 : group_position(unit, ratio);
            for (int64_t d = 0; d < words; ++d) {
                values_.push(element<int32_t>(kernel::at(table), rope.max_pos * words, position * words + d));
            }
        });
        values_.end();
    }

    const StepParams& p_;
    const StepAddresses& memory_;
    PageSlots table_;
    ScalarRun<int32_t> values_;
    ScalarRun<int64_t> wide_values_;
    BlockShare own_{0, 0};
    bool last_ = false;
    StepTotals before_{0, {0, 0}};
};

// Every output of a step, one block.
__aicore__ inline void write_step(const StepAddresses& memory, const StepParams& p) {
    AscendC::TPipe pipe;
    StepLoops step(&pipe, memory, p);
    const int64_t tokens = p.rows.num_tokens;
    step.row_vectors();
    step.positions<1>(kFieldPositions, tokens);
    step.positions<kRatioC4>(kFieldGroupPositions, p.capacity_groups[0]);
    step.positions<kRatioC128>(kFieldGroupPositionsC128, p.capacity_groups[1]);
    for (const int32_t pool : {kFull, kSwa, kC4State, kC128State}) {
        step.slots<1>(pool, tokens);
    }
    step.slots<kRatioC4>(kC4, p.capacity_groups[0]);
    step.slots<kRatioC128>(kC128, p.capacity_groups[1]);
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        step.page_table(pool);
    }
    step.states<kRatioC4>();
    step.states<kRatioC128>();
    step.windows();
    step.rope_rows<kRatioC4>(kStageRope);
    step.rope_rows<kRatioC128>(kStageRope + 1);
    step.rope_rows<1>(kStageTokenRope);
}

}  // namespace dsv4::naive
