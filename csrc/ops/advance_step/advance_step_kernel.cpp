#include "device/errors.h"
#include "device/iota.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "device/pool_slots.h"
#include "device/row_values.h"
#include "kernel_operator.h"
#include "ops/advance_step/advance_step_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// Rows as the verify left them, read in chunks. A bad row is padding.
class VerifiedRows {
  public:
    __aicore__ inline VerifiedRows(AscendC::TPipe* pipe, const AdvanceStepAddresses& from, const AdvanceStepParams& p)
        : p_(p) {
        constexpr uint32_t input_elems = static_cast<uint32_t>(kAdvanceChunkRows) * 2;
        // cu_seqlens have one entry more than there are rows.
        pipe->InitBuffer(buffer_, (5 * input_elems + kLaneElems + kSampleTileWords) * sizeof(int32_t));
        const LocalTensor<int32_t> values = buffer_.Get<int32_t>();
        requests_.init(at(from.requests), p.num_rows, p.request_is_int64, values);
        lengths_.init(at(from.lengths), p.num_rows, p.length_is_int64, values[input_elems]);
        counts_.init(at(from.accepted), p.num_rows, p.num_samples != 0 ? 0 : p.accepted_is_int64,
                     values[2 * input_elems]);
        drafts_.init(at(from.drafts), p.num_rows, p.drafts_is_int64, values[3 * input_elems]);
        offsets_.init(at(from.cu_seqlens), p.num_rows + 1, 0, values[4 * input_elems]);
        samples_ = values[5 * input_elems + static_cast<uint32_t>(kLaneElems)];
        sample_words_ =
            global<int32_t>(at(from.tokens), static_cast<uint64_t>(p.num_rows * p.num_samples) * token_words());
    }

    // Makes rows [first, first + rows) known.
    __aicore__ inline void load_chunk(int64_t first, uint32_t rows) {
        order<HardEvent::S_MTE2>();
        if (p_.has_requests != 0) {
            requests_.load_chunk(first, rows);
        }
        lengths_.load_chunk(first, rows);
        if (p_.num_samples == 0) {
            counts_.load_chunk(first, rows);
        }
        if (p_.has_drafts != 0) {
            drafts_.load_chunk(first, rows);
        }
        if (p_.has_cu_seqlens != 0) {
            offsets_.load_chunk(first, rows + 1);
        }
        order<HardEvent::MTE2_S>();
        if (p_.num_samples != 0) {
            count_samples(first, rows);
        }
        first_ = first;
        end_ = first + rows;
    }

    __aicore__ inline bool knows(int64_t first, int64_t rows) const { return first >= first_ && first + rows <= end_; }

    // A row that is known; errors: where to report a bad one, or null.
    __aicore__ inline VerifiedRow get(int64_t index, ErrorLane* errors) const {
        const uint32_t i = static_cast<uint32_t>(index - first_);
        const bool ragged = p_.has_cu_seqlens != 0;
        const VerifiedRow row{p_.has_requests != 0 ? requests_.get(i) : index,
                              lengths_.get(i),
                              counts_.get(i),
                              p_.has_drafts != 0 ? drafts_.get(i) : 0,
                              ragged ? offsets_.get(i) : index * p_.width,
                              ragged ? offsets_.get(i + 1) : (index + 1) * p_.width};
        const int32_t fault = advance_fault(row, p_);
        if (fault == kAdvanceValid && !is_padding(row)) {
            return row;
        }
        if (fault != kAdvanceValid && errors != nullptr) {
            errors->report(fault, index, advance_faulty_value(fault, row));
        }
        return VerifiedRow{0, 0, 0, 0, 0, 0};
    }

  private:
    // int32 words of a token.
    __aicore__ inline uint32_t token_words() const { return p_.token_is_int64 != 0 ? 2 : 1; }

    // Rows of samples, as many at a time as fit; S counts.
    __aicore__ inline void count_samples(int64_t first, uint32_t rows) {
        const uint32_t pitch = static_cast<uint32_t>(sample_pitch_words(p_));
        const uint32_t words = static_cast<uint32_t>(p_.num_samples) * token_words();
        for (uint32_t row = 0; row < rows;) {
            const uint32_t count = min_of<uint32_t>(static_cast<uint32_t>(sample_tile_rows(p_)), rows - row);
            order<HardEvent::S_MTE2>();
            load_rows(samples_, sample_words_[static_cast<uint64_t>(first + row) * words], count, words, 0, pitch);
            order<HardEvent::MTE2_S>();
            for (uint32_t i = 0; i < count; ++i) {
                counts_.set(row + i, valid_samples(p_.num_samples, [&](int64_t sample) {
                                return this->sample(i * pitch, static_cast<uint32_t>(sample));
                            }));
            }
            row += count;
        }
    }

    __aicore__ inline int64_t sample(uint32_t row_words, uint32_t index) const {
        return p_.token_is_int64 != 0 ? samples_[row_words].ReinterpretCast<int64_t>().GetValue(index)
                                      : static_cast<int64_t>(samples_.GetValue(row_words + index));
    }

    const AdvanceStepParams& p_;
    TBuf<TPosition::VECCALC> buffer_;
    RowValues requests_, lengths_, counts_, drafts_, offsets_;
    LocalTensor<int32_t> samples_;
    GlobalTensor<int32_t> sample_words_;
    int64_t first_ = 0;
    int64_t end_ = 0;
};

// A block's share of the hidden rows, in tiles of two buffers in turn: MTE2 fetches each row's piece, V clears those of
// padding, MTE3 stores a tile with one copy. Elements are moved as pairs of bytes.
class HiddenRows {
  public:
    __aicore__ inline HiddenRows(AscendC::TPipe* pipe, const AdvanceStepAddresses& memory, const AdvanceStepParams& p)
        : p_(p) {
        from_ = global<uint16_t>(at(memory.hidden), static_cast<uint64_t>(p.num_tokens * p.hidden_row_halves));
        to_ = global<uint16_t>(at(memory.fields[kAdvancedHidden]),
                               static_cast<uint64_t>(p.num_rows * p.hidden_row_halves));
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
            const AdvancedRow next = advanced_row(row, p_);
            if (next.accepted != 0) {
                load(buffer[i * pitch],
                     from_[static_cast<uint64_t>(sampled_token(row, next) * p_.hidden_row_halves + tile.offset_halves)],
                     halves);
            } else {
                ++padding;
            }
        }
        order<HardEvent::MTE2_V>();
        for (uint32_t i = 0; padding != 0 && i < count; ++i) {
            if (advanced_row(rows.get(tile.row + i, nullptr), p_).accepted == 0) {
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

// A block's share of the outputs with one entry a row. A row's newest token, which lies anywhere in memory, is fetched
// into a 32-byte block of its own, from which V picks it; so it does with the slots.
class AdvancedRows {
  public:
    __aicore__ inline AdvancedRows(AscendC::TPipe* pipe, const AdvanceStepAddresses& memory, GM_ADDR error_lanes,
                                   const AdvanceStepParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpAdvanceStep) {
        constexpr uint32_t rows = static_cast<uint32_t>(kAdvanceChunkRows);
        pipe->InitBuffer(result_buffer_, kNumAdvancedFields * 2 * rows * sizeof(int32_t));
        pipe->InitBuffer(token_buffer_, rows * kUbBlockBytes);
        pipe->InitBuffer(slot_buffer_, (kSlotTileLanes + kPoolSlotElems) * sizeof(int32_t));
        pipe->InitBuffer(pick_buffer_, 3 * rows * sizeof(int32_t));
        const bool is_wide[kNumAdvancedFields] = {
            p.length_is_int64 != 0, false, p.token_is_int64 != 0, true, false, false, true, false, false, false};
        for (uint32_t field = 0; field < kNumAdvancedFields; ++field) {
            results_[field].init(at(memory.fields[field]), p.num_rows, is_wide[field] ? 1 : 0,
                                 result_buffer_.Get<int32_t>()[field * 2 * rows]);
        }
        const uint64_t tokens = static_cast<uint64_t>(p.num_samples != 0 ? p.num_rows * p.num_samples : p.num_tokens);
        tokens_ = global<int32_t>(at(memory.tokens), tokens * token_words());
        backup_ = global<int32_t>(at(memory.backup), static_cast<uint64_t>(p.num_rows) * token_words());
        iota_ = slot_buffer_.Get<int32_t>();
        words_ = pick_buffer_.Get<int32_t>();
        pairs_ = words_[rows];
        slots_ = PoolSlots(p.pools, memory.tables, iota_, iota_[kSlotTileLanes]);
    }

    __aicore__ inline void run(VerifiedRows& rows) {
        const BlockShare share = advance_rows(p_, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        if (share.begin < share.end) {
            fill_iota(iota_, kSlotTileLanes);
            prepare_picks();
        }
        for (int64_t first = share.begin; first < share.end; first += kAdvanceChunkRows) {
            const uint32_t count = static_cast<uint32_t>(min_of<int64_t>(kAdvanceChunkRows, share.end - first));
            rows.load_chunk(first, count);
            // Stores of the chunk before read what S sets, and what V picks when MTE2, which S starts, has brought
            // tokens.
            order<HardEvent::MTE3_S>();
            AscendC::Duplicate(token_buffer_.Get<int32_t>(), int32_t{0}, static_cast<int32_t>(count * kLaneElems));
            order<HardEvent::V_MTE2>();
            for (uint32_t i = 0; i < count; ++i) {
                advance(rows.get(first + i, &errors_), first + i, i);
            }
            order<HardEvent::MTE2_V>();
            pick(kAdvancedTokens, token_buffer_.Get<int32_t>(), count);
            set_slots(count);
            order<HardEvent::V_MTE3>();
            order<HardEvent::S_MTE3>();
            for (uint32_t field = 0; field < kNumAdvancedFields; ++field) {
                if (field != kAdvancedHidden && wants(p_, static_cast<int32_t>(field))) {
                    results_[field].store_chunk(first, count);
                }
            }
        }
        errors_.flush();
    }

  private:
    // int32 words of a token.
    __aicore__ inline uint32_t token_words() const { return p_.token_is_int64 != 0 ? 2 : 1; }

    __aicore__ inline LocalTensor<int32_t> token_lane(uint32_t i) {
        return token_buffer_.Get<int32_t>()[i * static_cast<uint32_t>(kLaneElems)];
    }

    // What becomes of a row, all but its newest token, which MTE2 fetches, and its slots. A row without a token has 0.
    __aicore__ inline void advance(const VerifiedRow& row, int64_t index, uint32_t i) {
        const AdvancedRow next = advanced_row(row, p_);
        const int64_t length = advanced_length(next);
        const bool drafts = can_draft(next, p_);
        if (row.count != 0) {
            const int64_t token =
                p_.num_samples != 0 ? index * p_.num_samples + row.count - 1 : sampled_token(row, next);
            load(token_lane(i), tokens_[static_cast<uint64_t>(token) * token_words()], token_words());
        } else if (p_.has_backup != 0 && !is_padding(row)) {
            load(token_lane(i), backup_[static_cast<uint64_t>(index) * token_words()], token_words());
        }
        results_[kAdvancedLengths].set(i, length);
        results_[kAdvancedExtend].set(i, next.accepted);
        results_[kAdvancedPositions].set(i, drafts ? length : 0);
        results_[kAdvancedSampled].set(i, next.accepted != 0 ? sampled_token(row, next) : 0);
        results_[kAdvancedCounts].set(i, row.count);
        results_[kAdvancedRejected].set(i, next.rejected);
        runs_[i] = UnitRun{row.request, length, 1, 0, drafts ? 1 : 0, i * static_cast<uint32_t>(kLaneElems)};
    }

    // Where the values of an output lie in 32-byte blocks, in bytes: one for each row, and two words for each.
    __aicore__ inline void prepare_picks() {
        constexpr int32_t rows = static_cast<int32_t>(kAdvanceChunkRows);
        AscendC::Muls(words_, iota_, static_cast<int32_t>(kUbBlockBytes), rows);
        AscendC::ShiftRight(pairs_, iota_, int32_t{1}, 2 * rows);
        AscendC::PipeBarrier<PIPE_V>();
        const LocalTensor<int32_t> pair_words = token_buffer_.Get<int32_t>();
        AscendC::Muls(pairs_, pairs_, static_cast<int32_t>(kUbBlockBytes) - 8, 2 * rows);
        AscendC::Muls(pair_words, iota_, int32_t{4}, 2 * rows);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(pairs_, pairs_, pair_words, 2 * rows);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // An output's values, one in each 32-byte block; V.
    __aicore__ inline void pick(int32_t field, const LocalTensor<int32_t>& blocks, uint32_t count) {
        const RowValues& result = results_[field];
        const LocalTensor<int32_t>& where = result.is_int64() ? pairs_ : words_;
        AscendC::Gather(result.words(), blocks, where.template ReinterpretCast<uint32_t>(), uint32_t{0},
                        result.is_int64() ? 2 * count : count);
    }

    // The slots of the newest token's position of each row: a run of one unit in 8 lanes.
    __aicore__ inline void set_slots(uint32_t count) {
        const uint32_t pools = wants(p_, kAdvancedFullSlots) << kFull | wants(p_, kAdvancedFullSlots + kSwa) << kSwa;
        if (pools == 0) {
            return;
        }
        slots_.start(runs_, count, count * static_cast<uint32_t>(kLaneElems), pools);
        for (const int32_t pool : {kFull, kSwa}) {
            if ((pools >> pool & 1) != 0) {
                // V has picked the slots of the pool before.
                AscendC::PipeBarrier<PIPE_V>();
                pick(kAdvancedFullSlots + pool, slots_.slots(pool, p_.dummy_slots[pool]), count);
            }
        }
    }

    const AdvanceStepParams& p_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> result_buffer_, token_buffer_, slot_buffer_, pick_buffer_;
    RowValues results_[kNumAdvancedFields];
    GlobalTensor<int32_t> tokens_, backup_;
    LocalTensor<int32_t> iota_, words_, pairs_;
    PoolSlots slots_;
    UnitRun runs_[kMaxRuns];
};
static_assert(kAdvanceChunkRows <= kMaxRuns);

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void advance_step(GM_ADDR error_lanes, AdvanceStepAddresses memory,
                                                   AdvanceStepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    dsv4::kernel::VerifiedRows rows(&pipe, memory, p);
    dsv4::kernel::HiddenRows hidden_rows(&pipe, memory, p);
    dsv4::kernel::AdvancedRows advanced_rows(&pipe, memory, error_lanes, p);
    // First: the second overwrites lengths when they change in place.
    hidden_rows.run(rows);
    advanced_rows.run(rows);
}
