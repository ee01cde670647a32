#include "cpu/step_slot_loops.h"

#include <algorithm>

namespace dsv4::cpu {
namespace {

// target: [entries] slots of the tokens, the dummy for those of padding rows and behind the last row.
template <typename T>
void write_token_slots(const ScannedStep& step, const PoolSlots& slots, int32_t pool, T dummy, T* target,
                       int64_t entries) {
    int64_t written = 0;
    for (const ScannedRow& row : step.rows) {
        if (is_padding(row)) {
            continue;
        }
        std::fill(target + written, target + row.token_begin, dummy);
        slots.write(pool, row.request, row.start, final_length(row), dummy, target + row.token_begin);
        written = row.token_begin + row.num_new;
    }
    std::fill(target + written, target + entries, dummy);
}

// target: [entries] slots of the completed groups, dense in batch order, then the dummy.
template <typename T>
void write_group_slots(const ScannedStep& step, const PoolSlots& slots, int32_t pool, T dummy, T* target,
                       int64_t entries) {
    T* const end = target + entries;
    for (const ScannedRow& row : step.rows) {
        const int64_t begin = units_in(row.start, pool);
        const int64_t last = units_in(final_length(row), pool);
        slots.write(pool, row.request, begin, last, dummy, target);
        target += last - begin;
    }
    std::fill(target, end, dummy);
}

template <typename T>
void write_slots(const ScannedStep& step, const StepParams& p, const PoolSlots& slots, int32_t pool, T* target,
                 int64_t entries) {
    const T dummy = p.dummy_slots[pool];
    if (is_group_pool(pool)) {
        write_group_slots<T>(step, slots, pool, dummy, target, entries);
    } else {
        write_token_slots<T>(step, slots, pool, dummy, target, entries);
    }
}

// target: [entries, 2]. The slots are written behind the middle first; no pair reaches a slot that is still to be read.
void write_pairs(const ScannedStep& step, const StepParams& p, const PoolSlots& slots, int32_t pool, int32_t* target,
                 int64_t entries) {
    write_slots<int32_t>(step, p, slots, pool, target + entries, entries);
    const int32_t shift = p.pools[pool].page_shift;
    for (int64_t i = 0; i < entries; ++i) {
        const int64_t slot = target[entries + i];
        target[2 * i] = static_cast<int32_t>(page_of(slot, shift));
        target[2 * i + 1] = static_cast<int32_t>(offset_in_page(slot, shift));
    }
}

// out: [B, columns], the slot of token start - lead + column.
template <int64_t ratio>
void write_state_locs(const ScannedStep& step, const StepParams& p, const PoolSlots& slots, const at::Tensor& out) {
    constexpr int32_t pool = ratio == kRatioC4 ? kC4State : kC128State;
    const int64_t columns = p.state_columns[pool - kC4State];
    const int32_t dummy = p.dummy_slots[pool];
    int32_t* target = out.mutable_data_ptr<int32_t>();
    for (const ScannedRow& row : step.rows) {
        const TokenSpan tokens = state_tokens(row, pool - kC4State, p);
        const int64_t count = tokens.end - tokens.begin;
        const int64_t first = count == 0 ? columns : state_column(row, tokens.begin, ratio);
        std::fill_n(target, first, dummy);
        slots.write(pool, row.request, tokens.begin, tokens.end, dummy, target + first);
        std::fill(target + first + count, target + columns, dummy);
        target += columns;
    }
}

// out: [rows * block, K], the swa slots that every token of a row's block attends to, without gaps.
void write_window_locs(const ScannedStep& step, const StepParams& p, const PoolSlots& slots, const at::Tensor& out) {
    int32_t* target = out.mutable_data_ptr<int32_t>();
    int32_t* const end = target + out.numel();
    const auto close_row = [&](int32_t* written, int32_t* row_begin) {
        std::fill(written, row_begin + p.window_columns, kWindowEnd);
        return row_begin + p.window_columns;
    };
    for (const ScannedRow& row : step.rows) {
        const TokenSpan tokens = window_tokens(row, p);
        int32_t* const first = target;
        slots.write(kSwa, row.request, tokens.begin, tokens.end, kWindowEnd, first);
        int32_t* written = first + (tokens.end - tokens.begin);
        if (is_padding(row)) {
            *written++ = kIdleWindow;
        }
        target = close_row(written, first);
        for (int32_t k = 1; k < p.window_block; ++k) {
            target = std::copy_n(first, p.window_columns, target);
        }
    }
    while (target != end) {
        *target = kIdleWindow;
        target = close_row(target + 1, target);
    }
}

}  // namespace

void write_step_slots(const ScannedStep& step, const StepParams& p, const StepTensors& t, const PoolSlots& slots) {
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (!wants(p, kFieldSlots + pool)) {
            continue;
        }
        const at::Tensor& out = t.fields[kFieldSlots + pool];
        if (are_pairs(p, pool)) {
            write_pairs(step, p, slots, pool, out.mutable_data_ptr<int32_t>(), out.size(0));
        } else if (are_wide(p, pool)) {
            write_slots(step, p, slots, pool, out.mutable_data_ptr<int64_t>(), out.size(0));
        } else {
            write_slots(step, p, slots, pool, out.mutable_data_ptr<int32_t>(), out.size(0));
        }
    }
    if (wants(p, kFieldC4StateLocs)) {
        write_state_locs<kRatioC4>(step, p, slots, t.fields[kFieldC4StateLocs]);
    }
    if (wants(p, kFieldC128StateLocs)) {
        write_state_locs<kRatioC128>(step, p, slots, t.fields[kFieldC128StateLocs]);
    }
    if (wants(p, kFieldWindowLocs)) {
        write_window_locs(step, p, slots, t.fields[kFieldWindowLocs]);
    }
}

}  // namespace dsv4::cpu
