#include "device/errors.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "device/row_values.h"
#include "kernel_operator.h"
#include "ops/advance_step/advance_step_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

struct AdvanceAddresses {
    GM_ADDR full_table;
    GM_ADDR swa_table;
    GM_ADDR requests;
    GM_ADDR lengths;
    GM_ADDR accepted;
    GM_ADDR tokens;
    GM_ADDR cu_seqlens;  // not read without
    GM_ADDR hidden;      // likewise
    GM_ADDR next_lengths;
    GM_ADDR extend;
    GM_ADDR next_tokens;
    GM_ADDR positions;
    GM_ADDR full_slots;
    GM_ADDR swa_slots;
    GM_ADDR sampled;
    GM_ADDR next_hidden;
};

// Rows as the verify left them, read in chunks. A bad row is padding.
class VerifiedRows {
  public:
    __aicore__ inline VerifiedRows(AscendC::TPipe* pipe, const AdvanceAddresses& from, const AdvanceStepParams& p)
        : p_(p) {
        constexpr uint32_t input_elems = static_cast<uint32_t>(kAdvanceChunkRows) * 2;
        // cu_seqlens have one entry more than there are rows.
        pipe->InitBuffer(buffer_, (4 * input_elems + kLaneElems) * sizeof(int32_t));
        const LocalTensor<int32_t> values = buffer_.Get<int32_t>();
        requests_.init(from.requests, p.num_rows, p.request_is_int64, values);
        lengths_.init(from.lengths, p.num_rows, p.length_is_int64, values[input_elems]);
        accepted_.init(from.accepted, p.num_rows, p.accepted_is_int64, values[2 * input_elems]);
        offsets_.init(from.cu_seqlens, p.num_rows + 1, 0, values[3 * input_elems]);
    }

    // Makes rows [first, first + rows) known.
    __aicore__ inline void load_chunk(int64_t first, uint32_t rows) {
        order<HardEvent::S_MTE2>();
        requests_.load_chunk(first, rows);
        lengths_.load_chunk(first, rows);
        accepted_.load_chunk(first, rows);
        if (p_.has_cu_seqlens != 0) {
            offsets_.load_chunk(first, rows + 1);
        }
        order<HardEvent::MTE2_S>();
        first_ = first;
        end_ = first + rows;
    }

    __aicore__ inline bool knows(int64_t first, int64_t rows) const { return first >= first_ && first + rows <= end_; }

    // A row that is known; errors: where to report a bad one, or null.
    __aicore__ inline VerifiedRow get(int64_t index, ErrorLane* errors) const {
        const uint32_t i = static_cast<uint32_t>(index - first_);
        const bool ragged = p_.has_cu_seqlens != 0;
        const VerifiedRow row{requests_.get(i), lengths_.get(i), accepted_.get(i),
                              ragged ? offsets_.get(i) : index * p_.width,
                              ragged ? offsets_.get(i + 1) : (index + 1) * p_.width};
        const int32_t fault = advance_fault(row, p_);
        if (fault == kAdvanceValid) {
            return row;
        }
        if (errors != nullptr) {
            errors->report(fault, index, advance_faulty_value(fault, row));
        }
        return VerifiedRow{0, 0, 0, 0, 0};
    }

  private:
    const AdvanceStepParams& p_;
    TBuf<TPosition::VECCALC> buffer_;
    RowValues requests_, lengths_, accepted_, offsets_;
    int64_t first_ = 0;
    int64_t end_ = 0;
};

// A block's share of the hidden rows, in tiles of two buffers in turn: MTE2 fetches each row's piece, V clears those of
// padding, MTE3 stores a tile with one copy. Elements are moved as pairs of bytes.
class HiddenRows {
  public:
    __aicore__ inline HiddenRows(AscendC::TPipe* pipe, GM_ADDR hidden, GM_ADDR next_hidden, const AdvanceStepParams& p)
        : p_(p) {
        from_ = global<uint16_t>(hidden, static_cast<uint64_t>(p.num_tokens * p.hidden_row_halves));
        to_ = global<uint16_t>(next_hidden, static_cast<uint64_t>(p.num_rows * p.hidden_row_halves));
        pipe->InitBuffer(buffer_, 2 * kHiddenTileHalves * sizeof(uint16_t));
    }

    __aicore__ inline void run(VerifiedRows& rows) {
        const BlockShare share = advance_hidden(p_, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
        const int64_t end_row = hidden_end_row(p_, share);
        uint32_t turn = 0;
        for (int64_t begin = share.begin; begin < share.end;) {
            const HiddenTile tile = hidden_tile(p_, begin, share.end);
            if (!rows.knows(tile.row, tile.rows)) {
                // No row of another block: its length may change meanwhile.
                rows.load_chunk(tile.row,
                                static_cast<uint32_t>(min_of<int64_t>(kAdvanceChunkRows, end_row - tile.row)));
            }
            const event_t stored = turn == 0 ? EVENT_ID0 : EVENT_ID1;
            AscendC::WaitFlag<HardEvent::MTE3_MTE2>(stored);
            move(tile, begin, buffer_.Get<uint16_t>()[turn * static_cast<uint32_t>(kHiddenTileHalves)], rows);
            AscendC::SetFlag<HardEvent::MTE3_MTE2>(stored);
            turn = 1 - turn;
            begin += tile.rows * tile.row_halves;
        }
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
    }

  private:
    __aicore__ inline void move(const HiddenTile& tile, int64_t begin, const LocalTensor<uint16_t>& buffer,
                                const VerifiedRows& rows) {
        const uint32_t halves = static_cast<uint32_t>(tile.row_halves);
        const uint32_t pitch = static_cast<uint32_t>(tile.pitch_halves);
        const uint32_t count = static_cast<uint32_t>(tile.rows);
        uint32_t padding = 0;
        for (uint32_t i = 0; i < count; ++i) {
            const VerifiedRow row = rows.get(tile.row + i, nullptr);
            if (has_accepted(row)) {
                load(buffer[i * pitch],
                     from_[static_cast<uint64_t>(sampled_token(row) * p_.hidden_row_halves + tile.offset_halves)],
                     halves);
            } else {
                ++padding;
            }
        }
        order<HardEvent::MTE2_V>();
        for (uint32_t i = 0; padding != 0 && i < count; ++i) {
            if (!has_accepted(rows.get(tile.row + i, nullptr))) {
                AscendC::Duplicate(buffer[i * pitch], uint16_t{0}, static_cast<int32_t>(halves));
                --padding;
            }
        }
        order<HardEvent::V_MTE3>();
        store_rows(to_[static_cast<uint64_t>(begin)], buffer, count, halves, pitch);
    }

    const AdvanceStepParams& p_;
    GlobalTensor<uint16_t> from_, to_;
    TBuf<TPosition::VECCALC> buffer_;
};

// A block's share of the outputs with one entry a row. What lies anywhere in memory, a token and two slots a row, is
// fetched into 32-byte lanes, from which S picks it.
class AdvancedRows {
  public:
    __aicore__ inline AdvancedRows(AscendC::TPipe* pipe, const AdvanceAddresses& at, GM_ADDR error_lanes,
                                   const AdvanceStepParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpAdvanceStep) {
        constexpr uint32_t rows = static_cast<uint32_t>(kAdvanceChunkRows);
        pipe->InitBuffer(result_buffer_, kResults * 2 * rows * sizeof(int32_t));
        pipe->InitBuffer(lane_buffer_, kLanes * rows * kUbBlockBytes);
        init_result(kNextLength, at.next_lengths, p.length_is_int64);
        init_result(kExtend, at.extend, 0);
        init_result(kNextToken, at.next_tokens, p.token_is_int64);
        init_result(kPosition, at.positions, 1);
        init_result(kFullSlot, at.full_slots, 0);
        init_result(kSwaSlot, at.swa_slots, 0);
        init_result(kSampled, at.sampled, 1);
        narrow_tokens_ = global<int32_t>(at.tokens, static_cast<uint64_t>(p.num_tokens));
        wide_tokens_ = global<int64_t>(at.tokens, static_cast<uint64_t>(p.num_tokens));
        full_table_ = global<int32_t>(at.full_table, static_cast<uint64_t>(p.max_requests * p.full_row_elems));
        swa_table_ = global<int32_t>(at.swa_table, static_cast<uint64_t>(p.max_requests * p.swa_row_elems));
    }

    __aicore__ inline void run(VerifiedRows& rows) {
        const BlockShare share = advance_rows(p_, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        for (int64_t first = share.begin; first < share.end; first += kAdvanceChunkRows) {
            const uint32_t count = static_cast<uint32_t>(min_of<int64_t>(kAdvanceChunkRows, share.end - first));
            rows.load_chunk(first, count);
            fetch(rows, first, count);
            order<HardEvent::MTE2_S>();
            order<HardEvent::MTE3_S>();
            for (uint32_t i = 0; i < count; ++i) {
                set(rows.get(first + i, &errors_), i);
            }
            order<HardEvent::S_MTE3>();
            for (uint32_t result = 0; result < kResults; ++result) {
                if ((result != kFullSlot || pool_exists(p_.full_row_elems)) &&
                    (result != kSwaSlot || pool_exists(p_.swa_row_elems))) {
                    results_[result].store_chunk(first, count);
                }
            }
        }
        errors_.flush();
    }

  private:
    static constexpr uint32_t kNextLength = 0;
    static constexpr uint32_t kExtend = 1;
    static constexpr uint32_t kNextToken = 2;
    static constexpr uint32_t kPosition = 3;
    static constexpr uint32_t kFullSlot = 4;
    static constexpr uint32_t kSwaSlot = 5;
    static constexpr uint32_t kSampled = 6;
    static constexpr uint32_t kResults = 7;

    static constexpr uint32_t kTokenLane = 0;
    static constexpr uint32_t kFullLane = 1;
    static constexpr uint32_t kSwaLane = 2;
    static constexpr uint32_t kLanes = 3;

    __aicore__ inline void init_result(uint32_t result, GM_ADDR values, int32_t is_int64) {
        results_[result].init(values, p_.num_rows, is_int64,
                              result_buffer_.Get<int32_t>()[result * 2 * static_cast<uint32_t>(kAdvanceChunkRows)]);
    }

    __aicore__ inline LocalTensor<int32_t> lane(uint32_t which, uint32_t chunk_row) {
        const uint32_t index = which * static_cast<uint32_t>(kAdvanceChunkRows) + chunk_row;
        return lane_buffer_.Get<int32_t>()[index * static_cast<uint32_t>(kLaneElems)];
    }

    __aicore__ inline void fetch(const VerifiedRows& rows, int64_t first, uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) {
            const VerifiedRow row = rows.get(first + i, nullptr);
            if (has_accepted(row)) {
                const uint64_t token = static_cast<uint64_t>(sampled_token(row));
                if (p_.token_is_int64 != 0) {
                    load(lane(kTokenLane, i).ReinterpretCast<int64_t>(), wide_tokens_[token], 1);
                } else {
                    load(lane(kTokenLane, i), narrow_tokens_[token], 1);
                }
            }
            if (can_draft(row, p_)) {
                fetch_slot(row, kFullLane, full_table_, p_.full_row_elems, i);
                fetch_slot(row, kSwaLane, swa_table_, p_.swa_row_elems, i);
            }
        }
    }

    __aicore__ inline void fetch_slot(const VerifiedRow& row, uint32_t which, const GlobalTensor<int32_t>& table,
                                      int64_t row_elems, uint32_t i) {
        if (pool_exists(row_elems)) {
            load(lane(which, i), table[static_cast<uint64_t>(draft_slot_offset_elems(row, row_elems))], 1);
        }
    }

    __aicore__ inline void set(const VerifiedRow& row, uint32_t i) {
        const bool accepted = has_accepted(row);
        const bool drafts = can_draft(row, p_);
        results_[kNextLength].set(i, advanced_length(row));
        results_[kExtend].set(i, extend_width(row));
        results_[kNextToken].set(i, accepted ? token(i) : 0);
        results_[kPosition].set(i, drafts ? advanced_length(row) : 0);
        results_[kSampled].set(i, accepted ? sampled_token(row) : 0);
        results_[kFullSlot].set(i, drafts && pool_exists(p_.full_row_elems) ? lane(kFullLane, i).GetValue(0) : 0);
        results_[kSwaSlot].set(i, drafts && pool_exists(p_.swa_row_elems) ? lane(kSwaLane, i).GetValue(0) : 0);
    }

    __aicore__ inline int64_t token(uint32_t i) {
        const LocalTensor<int32_t> value = lane(kTokenLane, i);
        return p_.token_is_int64 != 0 ? value.ReinterpretCast<int64_t>().GetValue(0)
                                      : static_cast<int64_t>(value.GetValue(0));
    }

    const AdvanceStepParams& p_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> result_buffer_, lane_buffer_;
    RowValues results_[kResults];
    GlobalTensor<int32_t> narrow_tokens_, full_table_, swa_table_;
    GlobalTensor<int64_t> wide_tokens_;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void advance_step(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR requests,
                                                   GM_ADDR lengths, GM_ADDR accepted, GM_ADDR tokens,
                                                   GM_ADDR cu_seqlens, GM_ADDR hidden, GM_ADDR next_lengths,
                                                   GM_ADDR extend, GM_ADDR next_tokens, GM_ADDR positions,
                                                   GM_ADDR full_slots, GM_ADDR swa_slots, GM_ADDR sampled,
                                                   GM_ADDR next_hidden, GM_ADDR error_lanes, AdvanceStepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    const dsv4::kernel::AdvanceAddresses at{full_table,  swa_table, requests,   lengths,   accepted, tokens,
                                            cu_seqlens,  hidden,    next_lengths, extend,  next_tokens, positions,
                                            full_slots,  swa_slots, sampled,    next_hidden};
    dsv4::kernel::VerifiedRows rows(&pipe, at, p);
    dsv4::kernel::HiddenRows hidden_rows(&pipe, hidden, next_hidden, p);
    dsv4::kernel::AdvancedRows advanced_rows(&pipe, at, error_lanes, p);
    // First: the second overwrites lengths when they change in place.
    hidden_rows.run(rows);
    advanced_rows.run(rows);
}
