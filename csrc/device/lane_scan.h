// Arithmetic of V over rows that lie in UB, an int32 for each: what S finds row by row for hundreds of rows in the time
// of ten. Whatever is wrong with a row leaves a bit in its lane; rows with one are left to S.
#pragma once

#include "common/step_launch.h"
#include "device/row_values.h"

namespace dsv4::kernel {

// lanes: a power of two, at least 16.
template <int64_t lanes, int64_t areas>
class LaneScan {
  public:
    static constexpr uint32_t kLanes = static_cast<uint32_t>(lanes);

    // scratch: lane_scan_elems. iota: at least kLanes + 1.
    __aicore__ inline void init(const LocalTensor<int32_t>& iota, const LocalTensor<int32_t>& scratch) {
        iota_ = iota;
        scratch_ = scratch;
        faults_ = scratch;
        aux_ = scratch[kArea];
        fresh_ = scratch[2 * kArea];
        offsets_ = scratch[3 * kArea];
        wide_offsets_ = scratch[4 * kArea];
    }

    // Starts on n rows, at least one.
    __aicore__ inline void begin(uint32_t n) {
        n_ = static_cast<int32_t>(n);
        AscendC::Duplicate(faults_, int32_t{0}, static_cast<int32_t>(kLanes));
        AscendC::Muls(offsets_, iota_, int32_t{4}, n_ + 1);
        AscendC::Muls(wide_offsets_, iota_, int32_t{8}, n_ + 1);
        AscendC::PipeBarrier<PIPE_V>();
    }

    __aicore__ inline int32_t rows() const { return n_; }

    // The caller's, with room for kLanes + 8.
    __aicore__ inline LocalTensor<int32_t> area(uint32_t number) const { return scratch_[(kOwn + number) * kArea]; }

    // Numbers that are not 0 are faults.
    __aicore__ inline void must_be_zero(const LocalTensor<int32_t>& values) const {
        const LocalTensor<uint16_t> bits = faults_.template ReinterpretCast<uint16_t>();
        AscendC::Or(bits, bits, values.template ReinterpretCast<uint16_t>(), 2 * n_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // to = from, another buffer, cut off at 0 and `most`, so that arithmetic on it stays within int32; what is cut off is a
    // fault.
    __aicore__ inline void take_within(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from,
                                       int64_t most) const {
        clamp(to, from, 0, most);
        AscendC::Sub(aux_, from, to, n_);
        AscendC::PipeBarrier<PIPE_V>();
        must_be_zero(aux_);
    }

    // The same where `live` is 1; 0 where it is 0.
    __aicore__ inline void take_live_within(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from,
                                            const LocalTensor<int32_t>& live, int64_t most) const {
        AscendC::Mul(fresh_, from, live, n_);
        AscendC::PipeBarrier<PIPE_V>();
        take_within(to, fresh_, most);
    }

    // Numbers from 0 to `most`, as many entries after each row's own as `shift` says.
    __aicore__ inline void take(const LocalTensor<int32_t>& to, const RowValues& values, uint32_t shift,
                                int64_t most) const {
        if (values.is_int64()) {
            gather_words(fresh_, values, shift, 1);
            must_be_zero(fresh_);
        }
        gather_words(fresh_, values, shift, 0);
        take_within(to, fresh_, most);
    }

    // The same where `live` is 1; 0 where it is 0, whatever stands there.
    __aicore__ inline void take_live(const LocalTensor<int32_t>& to, const RowValues& values,
                                     const LocalTensor<int32_t>& live, int64_t most, uint32_t shift = 0) const {
        if (values.is_int64()) {
            gather_words(fresh_, values, shift, 1);
            AscendC::Mul(fresh_, fresh_, live, n_);
            AscendC::PipeBarrier<PIPE_V>();
            must_be_zero(fresh_);
        }
        gather_words(fresh_, values, shift, 0);
        take_live_within(to, fresh_, live, most);
    }

    // Numbers from 0 to `most`, or negative ones, for which `live` becomes 0, else 1, and the number 0.
    __aicore__ inline void take_if_positive(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& live,
                                            const RowValues& values, int64_t most) const {
        gather_words(to, values, 0, 0);
        clamp(aux_, to, -1, 0);
        if (values.is_int64()) {
            // The high word has the sign, -1 or 0 once it is cut off, and no low word of a positive number has one.
            gather_words(live, values, 0, 1);
            clamp(live, live, -1, 1);
            AscendC::Sub(aux_, aux_, live, n_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mins(aux_, aux_, int32_t{0}, n_);
            AscendC::PipeBarrier<PIPE_V>();
            must_be_zero(aux_);
            AscendC::Mins(live, live, int32_t{0}, n_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Adds(live, live, int32_t{1}, n_);
        } else {
            AscendC::Adds(live, aux_, int32_t{1}, n_);
        }
        AscendC::PipeBarrier<PIPE_V>();
        take_live_within(to, to, live, most);
    }

    // Where add_up() expects its numbers. Their sum and `before` together stay within int32.
    __aicore__ inline LocalTensor<int32_t> addends() const { return zeros(0)[kZeros]; }

    // to[i] = before + the sum of the first i addends, for n + 1 entries, which S reads; by doubling. Numbers less than
    // 8 apart do not lie at 32-byte boundaries, so that V gathers them.
    __aicore__ inline void add_up(const LocalTensor<int32_t>& to, int64_t before) const {
        // Behind zeros.
        const LocalTensor<int32_t> from[2] = {zeros(0), zeros(1)};
        const LocalTensor<int32_t> sums[2] = {from[0][kZeros], from[1][kZeros]};
        AscendC::Duplicate(from[0], int32_t{0}, static_cast<int32_t>(kZeros));
        AscendC::Duplicate(from[1], int32_t{0}, static_cast<int32_t>(kZeros));
        AscendC::PipeBarrier<PIPE_V>();
        uint32_t turn = 0;
        for (uint32_t distance = 1; distance < static_cast<uint32_t>(n_); distance *= 2) {
            if (distance < static_cast<uint32_t>(kLaneElems)) {
                gather(aux_, from[turn], 4, (kZeros - distance) * 4, n_);
                AscendC::Add(sums[1 - turn], sums[turn], aux_, n_);
            } else {
                AscendC::Add(sums[1 - turn], sums[turn], from[turn][kZeros - distance], n_);
            }
            AscendC::PipeBarrier<PIPE_V>();
            turn = 1 - turn;
        }
        gather(to, from[turn], 4, (kZeros - 1) * 4, n_ + 1);
        AscendC::Adds(to, to, static_cast<int32_t>(before), n_ + 1);
    }

    // Whether nothing is wrong with any row. S may read and write afterwards what V has made.
    __aicore__ inline bool all_good() const {
        int32_t left = static_cast<int32_t>(kLanes);
        while (left / 2 >= n_ && left > kLaneElems) {
            left /= 2;
        }
        const LocalTensor<uint16_t> bits = faults_.template ReinterpretCast<uint16_t>();
        while (left > kLaneElems) {
            left /= 2;
            AscendC::Or(bits, bits, bits[static_cast<uint32_t>(2 * left)], 2 * left);
            AscendC::PipeBarrier<PIPE_V>();
        }
        order<AscendC::HardEvent::V_S>();
        const LocalTensor<int64_t> pairs = faults_.template ReinterpretCast<int64_t>();
        int64_t fault = 0;
        for (uint32_t pair = 0; pair < static_cast<uint32_t>(kLaneElems) / 2; ++pair) {
            fault |= pairs.GetValue(pair);
        }
        return fault == 0;
    }

  private:
    // A number for each row, and one more.
    static constexpr uint32_t kArea = kLanes + static_cast<uint32_t>(kLaneElems);
    static constexpr uint32_t kZeros = kLanes / 2;  // in front of what is added up
    static constexpr uint32_t kOwn = 5;

    // What is added up, in turns, begins behind zeros.
    __aicore__ inline LocalTensor<int32_t> zeros(uint32_t turn) const {
        return scratch_[(kOwn + static_cast<uint32_t>(areas)) * kArea + turn * (kZeros + kArea)];
    }

    __aicore__ inline void clamp(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from, int32_t least,
                                 int64_t most) const {
        AscendC::Maxs(to, from, least, n_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(to, to, static_cast<int32_t>(most), n_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void gather(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from, uint32_t elem_bytes,
                                  uint32_t base_bytes, int32_t elems) const {
        const LocalTensor<int32_t>& offsets = elem_bytes == 4 ? offsets_ : wide_offsets_;
        AscendC::Gather(to, from, offsets.template ReinterpretCast<uint32_t>(), base_bytes,
                        static_cast<uint32_t>(elems));
        AscendC::PipeBarrier<PIPE_V>();
    }

    // word: 0 for the low words, 1 for the high ones.
    __aicore__ inline void gather_words(const LocalTensor<int32_t>& to, const RowValues& values, uint32_t shift,
                                        uint32_t word) const {
        const uint32_t bytes = values.is_int64() ? 8 : 4;
        gather(to, values.words(), bytes, shift * bytes + word * 4, n_);
    }

    LocalTensor<int32_t> faults_, aux_;
    LocalTensor<int32_t> fresh_;                   // not checked yet
    LocalTensor<int32_t> offsets_, wide_offsets_;  // iota times the bytes of an int32, and of an int64
    LocalTensor<int32_t> iota_, scratch_;
    int32_t n_ = 0;
};

}  // namespace dsv4::kernel
