// The newest token of each row of a chunk: a tile of tokens from which V picks them, as bits.
#pragma once

#include "device/memory.h"
#include "device/pipes.h"
#include "ops/advance_step/advance_step_index.h"

namespace dsv4::kernel {

class TokenTile {
  public:
    // iota: 0, 1, .. for two entries a row.
    __aicore__ inline TokenTile(AscendC::TPipe* pipe, const AdvanceStepAddresses& memory, const AdvanceStepParams& p,
                                const LocalTensor<int32_t>& iota)
        : p_(p), iota_(iota), words_(static_cast<uint32_t>(token_words(p))), is_whole_(keeps_tokens(p)) {
        pipe->InitBuffer(buffer_, (kTokens + kTileWords + 8 * kRows) * sizeof(int32_t));
        tile_ = buffer_.Get<int32_t>();
        tokens_ = tile_[kTokens];
        places_ = tokens_[kTileWords];
        places_of_rows_ = places_[kRows];
        pairs_ = places_of_rows_[kRows];
        halves_ = pairs_[2 * kRows];
        picked_ = halves_[2 * kRows];
        const int64_t tokens = p.num_samples != 0 ? p.num_rows * p.num_samples : p.num_tokens;
        memory_ = global<int32_t>(at(memory.tokens), static_cast<uint64_t>(tokens) * words_);
        backup_ = global<int32_t>(at(memory.backup), static_cast<uint64_t>(p.num_rows) * words_);
    }

    // Numbers that all chunks need; V.
    __aicore__ inline void prepare() const {
        constexpr int32_t rows = static_cast<int32_t>(kRows);
        const int32_t step = is_whole_ ? static_cast<int32_t>(token_columns(p_)) : kLane / static_cast<int32_t>(words_);
        AscendC::Duplicate(tile_, int32_t{0}, kLane);
        AscendC::Muls(places_of_rows_, iota_, step, rows);
        if (words_ == 2) {
            // Of a pair, the half's number times the distance of halves, and its row's place.
            constexpr int32_t distance = rows * static_cast<int32_t>(sizeof(int32_t));
            AscendC::ShiftRight(halves_, iota_, int32_t{1}, 2 * rows);
            AscendC::Muls(pairs_, iota_, distance, 2 * rows);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Muls(halves_, halves_, static_cast<int32_t>(sizeof(int32_t)) - 2 * distance, 2 * rows);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(pairs_, pairs_, halves_, 2 * rows);
        }
        AscendC::PipeBarrier<PIPE_V>();
        // The count of a row's tokens is added.
        AscendC::Adds(places_of_rows_, places_of_rows_, static_cast<int32_t>(kTokens / words_) - (is_whole_ ? 1 : 0),
                      rows);
    }

    // Fetches what can be fetched of rows [first, first + rows) before they are known. MTE2 comes after S and V, and S
    // and V after it, by the caller.
    __aicore__ inline void load_chunk(int64_t first, uint32_t rows) const {
        if (p_.has_backup != 0) {
            load(tile_[kLane], backup_[static_cast<uint64_t>(first) * words_], rows * words_);
        }
        if (is_whole_) {
            const uint32_t words = static_cast<uint32_t>(token_columns(p_)) * words_;
            load(tokens_, memory_[static_cast<uint64_t>(first) * words], rows * words);
        }
    }

    // Calls set(row of the chunk, valid samples) for each; S counts, of as many rows at a time as fit.
    template <typename Set>
    __aicore__ inline void count_samples(int64_t first, uint32_t rows, const Set& set) const {
        const uint32_t words = static_cast<uint32_t>(p_.num_samples) * words_;
        const uint32_t most = is_whole_ ? rows : kTileWords / words;
        for (uint32_t row = 0; row < rows; row += most) {
            const uint32_t count = min_of<uint32_t>(most, rows - row);
            if (!is_whole_) {
                order<AscendC::HardEvent::S_MTE2>();
                load(tokens_, memory_[static_cast<uint64_t>(first + row) * words], count * words);
                order<AscendC::HardEvent::MTE2_S>();
            }
            for (uint32_t i = 0; i < count; ++i) {
                set(row + i, valid_samples(p_.num_samples, [&](int64_t sample) {
                        return token(i * static_cast<uint32_t>(p_.num_samples) + static_cast<uint32_t>(sample));
                    }));
            }
        }
    }

    // Fetches the tokens that load_chunk() did not, of rows [first, first + rows) with so many samples or accepted
    // inputs, of which the last is input number `sampled` of all; S may read both, and has waited for V after it
    // counted.
    __aicore__ inline void fetch(int64_t first, uint32_t rows, const LocalTensor<int32_t>& counts,
                                 const LocalTensor<int32_t>& sampled) const {
        if (is_whole_) {
            return;
        }
        for (uint32_t i = 0; i < rows; ++i) {
            const int32_t count = counts.GetValue(i);
            if (count != 0) {
                const int64_t token =
                    p_.num_samples != 0 ? (first + i) * p_.num_samples + count - 1 : sampled.GetValue(i);
                load(tokens_[i * static_cast<uint32_t>(kLane)], memory_[static_cast<uint64_t>(token) * words_], words_);
            }
        }
    }

    // The newest tokens, as words: those of rows without one are 0, or of `live` rows the backup tokens. V, which comes
    // after MTE2 by the caller.
    __aicore__ inline LocalTensor<int32_t> pick(uint32_t rows, const LocalTensor<int32_t>& counts,
                                                const LocalTensor<int32_t>& live) const {
        const int32_t n = static_cast<int32_t>(rows);
        // Rows that have a token.
        AscendC::Mins(picked_, counts, int32_t{1}, n);
        if (is_whole_) {
            AscendC::Add(places_, places_of_rows_, counts, n);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(places_, is_whole_ ? places_ : places_of_rows_, picked_, n);
        if (p_.has_backup != 0) {
            const LocalTensor<int32_t> without = halves_[kRows];
            AscendC::Sub(without, live, picked_, n);
            AscendC::Adds(halves_, iota_, kLane / static_cast<int32_t>(words_), n);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(halves_, halves_, without, n);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(places_, places_, halves_, n);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(places_, places_, static_cast<int32_t>(words_ * sizeof(int32_t)), n);
        AscendC::PipeBarrier<PIPE_V>();
        if (words_ == 1) {
            gather(picked_, tile_, places_, 0, rows);
            return picked_;
        }
        gather(halves_, tile_, places_, 0, rows);
        gather(halves_[kRows], tile_, places_, sizeof(int32_t), rows);
        AscendC::PipeBarrier<PIPE_V>();
        gather(picked_, halves_, pairs_, 0, 2 * rows);
        return picked_;
    }

    __aicore__ inline uint32_t words() const { return words_; }  // int32 words of a token

  private:
    static constexpr uint32_t kRows = static_cast<uint32_t>(kAdvanceChunkRows);
    static constexpr uint32_t kTileWords = static_cast<uint32_t>(kTokenTileWords);
    static constexpr int32_t kLane = static_cast<int32_t>(kLaneElems);
    // A token 0, backup tokens, then tokens.
    static constexpr uint32_t kTokens = static_cast<uint32_t>(kLane) + 2 * kRows;

    __aicore__ inline void gather(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from,
                                  const LocalTensor<int32_t>& places, uint32_t base, uint32_t elems) const {
        AscendC::Gather(to, from, places.template ReinterpretCast<uint32_t>(), base, elems);
    }

    __aicore__ inline int64_t token(uint32_t index) const {
        return words_ == 2 ? tokens_.ReinterpretCast<int64_t>().GetValue(index)
                           : static_cast<int64_t>(tokens_.GetValue(index));
    }

    const AdvanceStepParams& p_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<int32_t> iota_, tile_, tokens_, places_, places_of_rows_, pairs_, halves_, picked_;
    GlobalTensor<int32_t> memory_, backup_;
    uint32_t words_;
    bool is_whole_;
};

}  // namespace dsv4::kernel
