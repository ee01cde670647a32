#include "device/errors.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "device/preload.h"
#include "kernel_operator.h"
#include "ops/advance_step/advance_step_index.h"
#include "ops/advance_step/position_slots.h"
#include "ops/advance_step/token_tile.h"
#include "ops/advance_step/verified_rows.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

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
                rows.load_chunk(tile.row, static_cast<uint32_t>(min_of<int64_t>(kAdvanceChunkRows, end_row - tile.row)),
                                nullptr);
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
        const uint32_t first = rows.place(tile.row);
        uint32_t padding = 0;
        for (uint32_t i = 0; i < count; ++i) {
            if (rows.next().accepted.GetValue(first + i) != 0) {
                const int64_t token = rows.next().sampled.GetValue(first + i);
                load(buffer[i * pitch], from_[static_cast<uint64_t>(token * p_.hidden_row_halves + tile.offset_halves)],
                     halves);
            } else {
                ++padding;
            }
        }
        order<HardEvent::MTE2_V>();
        for (uint32_t i = 0; padding != 0 && i < count; ++i) {
            if (rows.next().accepted.GetValue(first + i) == 0) {
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

// A block's share of the outputs with one entry a row.
class AdvancedRows {
  public:
    __aicore__ inline AdvancedRows(AscendC::TPipe* pipe, const AdvanceStepAddresses& memory, GM_ADDR error_lanes,
                                   const AdvanceStepParams& p, const TokenTile& tokens,
                                   const LocalTensor<int32_t>& iota)
        : p_(p),
          memory_(memory),
          errors_(pipe, error_lanes, kErrorOpAdvanceStep),
          tokens_(tokens),
          slots_(pipe, memory, p, iota) {
        pipe->InitBuffer(wide_buffer_, kNumAdvancedFields * kRows * sizeof(int64_t));
    }

    __aicore__ inline void run(VerifiedRows& rows) {
        const BlockShare share = advance_rows(p_, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        for (int64_t first = share.begin; first < share.end; first += kAdvanceChunkRows) {
            const uint32_t count = static_cast<uint32_t>(min_of<int64_t>(kAdvanceChunkRows, share.end - first));
            rows.load_chunk(first, count, &errors_);
            slots_.fetch(count, rows.next().requests, rows.next().positions);
            tokens_.fetch(first, count, rows.next().counts, rows.next().sampled);
            store_values(kAdvancedLengths, rows.next().lengths, p_.length_is_int64 != 0, first, count);
            store_values(kAdvancedExtend, rows.next().accepted, false, first, count);
            store_values(kAdvancedPositions, rows.next().positions, true, first, count);
            store_values(kAdvancedSampled, rows.next().sampled, true, first, count);
            store_values(kAdvancedCounts, rows.next().counts, false, first, count);
            store_values(kAdvancedRejected, rows.next().rejected, false, first, count);
            order<HardEvent::MTE2_V>();
            if (wants(p_, kAdvancedTokens)) {
                const LocalTensor<int32_t> newest = tokens_.pick(count, rows.next().counts, rows.next().live);
                store_words(kAdvancedTokens, newest, tokens_.words(), first, count);
            }
            for (const int32_t pool : {kFull, kSwa}) {
                if (wants(p_, kAdvancedFullSlots + pool)) {
                    store_words(kAdvancedFullSlots + pool, slots_.slots(pool, p_.dummy_slots[pool]), 1, first, count);
                }
            }
        }
        errors_.flush();
    }

  private:
    static constexpr uint32_t kRows = static_cast<uint32_t>(kAdvanceChunkRows);

    // What V has made of an output that may be asked for; is_int64: of which type the output is.
    __aicore__ inline void store_values(int32_t field, const LocalTensor<int32_t>& values, bool is_int64, int64_t first,
                                        uint32_t count) {
        if (!wants(p_, field)) {
            return;
        }
        if (!is_int64) {
            store_words(field, values, 1, first, count);
            return;
        }
        const LocalTensor<int64_t> wide = wide_buffer_.Get<int64_t>()[static_cast<uint32_t>(field) * kRows];
        AscendC::Cast(wide, values, AscendC::RoundMode::CAST_NONE, count);
        store_words(field, wide.template ReinterpretCast<int32_t>(), 2, first, count);
    }

    // The same as they are; words: int32 words of an entry.
    __aicore__ inline void store_words(int32_t field, const LocalTensor<int32_t>& values, uint32_t words, int64_t first,
                                       uint32_t count) const {
        const GlobalTensor<int32_t> to =
            global<int32_t>(at(memory_.fields[field]), static_cast<uint64_t>(p_.num_rows) * words);
        order<HardEvent::V_MTE3>();
        store(to[static_cast<uint64_t>(first) * words], values, count * words);
    }

    const AdvanceStepParams& p_;
    const AdvanceStepAddresses& memory_;
    ErrorLane errors_;
    const TokenTile& tokens_;
    PositionSlots slots_;
    TBuf<TPosition::VECCALC> wide_buffer_;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void advance_step(GM_ADDR error_lanes, AdvanceStepAddresses memory,
                                                   AdvanceStepParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(sizeof(GM_ADDR) + sizeof(AdvanceStepAddresses) + sizeof(AdvanceStepParams), 4);
    AscendC::TPipe pipe;
    AscendC::TBuf<AscendC::TPosition::VECCALC> iota_buffer;
    pipe.InitBuffer(iota_buffer, 2 * dsv4::kAdvanceChunkRows * sizeof(int32_t));
    const AscendC::LocalTensor<int32_t> iota = iota_buffer.Get<int32_t>();
    const dsv4::kernel::TokenTile tokens(&pipe, memory, p, iota);
    dsv4::kernel::VerifiedRows rows(&pipe, memory, p, tokens, iota);
    dsv4::kernel::AdvancedRows advanced_rows(&pipe, memory, error_lanes, p, tokens, iota);
    if (p.hidden_row_halves != 0) {
        dsv4::kernel::HiddenRows hidden_rows(&pipe, memory, p);
        // First: the other overwrites lengths when they change in place.
        hidden_rows.run(rows);
    }
    advanced_rows.run(rows);
}
