// Arithmetic of V over rows that lie in UB, an int32 for each: what S finds row by row for hundreds of rows in the time
// of ten. Whatever is wrong with a row leaves a bit in its lane; rows with one are left to S.
#pragma once

#include "common/step_launch.h"
#include "device/row_values.h"

namespace dsv4::kernel {

// lanes: a power of two, at least 16. areas: of the caller's own. sums: that are made at a time.
template <int64_t lanes, int64_t areas, int64_t most_sums = 1>
class LaneScan {
  public:
    static constexpr uint32_t kLanes = static_cast<uint32_t>(lanes);

    // scratch: lane_scan_elems. iota: at least kLanes + 1.
    __aicore__ inline void init(const LocalTensor<int32_t>& iota, const LocalTensor<int32_t>& scratch) {
        iota_ = iota;
        for (uint32_t area = 0; area < kOwn + static_cast<uint32_t>(areas); ++area) {
            areas_[area] = scratch[area * kArea];
        }
        for (uint32_t area = 0; area < 2 * static_cast<uint32_t>(most_sums); ++area) {
            sums_[area] = scratch[(kOwn + static_cast<uint32_t>(areas)) * kArea + area * (kZeros + kArea)];
        }
    }

    // Starts on n rows, at least one.
    __aicore__ inline void begin(uint32_t n) {
        n_ = static_cast<int32_t>(n);
        AscendC::Duplicate(faults(), int32_t{0}, static_cast<int32_t>(kLanes));
        AscendC::Muls(offsets(4), iota_, int32_t{4}, n_ + 1);
        AscendC::Muls(offsets(8), iota_, int32_t{8}, n_ + 1);
        AscendC::PipeBarrier<PIPE_V>();
    }

    __aicore__ inline int32_t rows() const { return n_; }

    // The caller's, with room for kLanes + 8.
    __aicore__ inline const LocalTensor<int32_t>& area(uint32_t number) const { return areas_[kOwn + number]; }

    // Numbers that are not 0 are faults.
    __aicore__ inline void must_be_zero(const LocalTensor<int32_t>& values) const {
        note_faults(values);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // to = from, another buffer, cut off at 0 and `most`, so that arithmetic on it stays within int32; what is cut off is a
    // fault.
    __aicore__ inline void take_within(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from,
                                       int64_t most) const {
        clamp(to, from, 0, most);
        AscendC::Sub(aux(), from, to, n_);
        AscendC::PipeBarrier<PIPE_V>();
        must_be_zero(aux());
    }

    // The same where `live` is 1; 0 where it is 0.
    __aicore__ inline void take_live_within(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from,
                                            const LocalTensor<int32_t>& live, int64_t most) const {
        AscendC::Mul(fresh(), from, live, n_);
        AscendC::PipeBarrier<PIPE_V>();
        take_within(to, fresh(), most);
    }

    // Numbers from 0 to `most`, as many entries after each row's own as `shift` says.
    __aicore__ inline void take(const LocalTensor<int32_t>& to, const RowValues& values, uint32_t shift,
                                int64_t most) const {
        gather_numbers(values, shift);
        if (values.is_int64()) {
            note_faults(aux());
        }
        take_within(to, fresh(), most);
    }

    // The same where `live` is 1; 0 where it is 0, whatever stands there.
    __aicore__ inline void take_live(const LocalTensor<int32_t>& to, const RowValues& values,
                                     const LocalTensor<int32_t>& live, int64_t most, uint32_t shift = 0) const {
        gather_numbers(values, shift);
        AscendC::Mul(fresh(), fresh(), live, n_);
        if (values.is_int64()) {
            AscendC::Mul(aux(), aux(), live, n_);
            AscendC::PipeBarrier<PIPE_V>();
            note_faults(aux());
        } else {
            AscendC::PipeBarrier<PIPE_V>();
        }
        take_within(to, fresh(), most);
    }

    // Numbers from 0 to `most`, or negative ones, for which `live` becomes 0, else 1, and the number 0.
    __aicore__ inline void take_if_positive(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& live,
                                            const RowValues& values, int64_t most) const {
        gather_words(to, values, 0, 0);
        clamp(aux(), to, -1, 0);
        if (values.is_int64()) {
            // The high word has the sign, -1 or 0 once it is cut off, and no low word of a positive number has one.
            gather_words(live, values, 0, 1);
            clamp(live, live, -1, 1);
            AscendC::Sub(aux(), aux(), live, n_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mins(aux(), aux(), int32_t{0}, n_);
            AscendC::PipeBarrier<PIPE_V>();
            must_be_zero(aux());
            AscendC::Mins(live, live, int32_t{0}, n_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Adds(live, live, int32_t{1}, n_);
        } else {
            AscendC::Adds(live, aux(), int32_t{1}, n_);
        }
        AscendC::PipeBarrier<PIPE_V>();
        take_live_within(to, to, live, most);
    }

    // Where add_up() expects the numbers of a sum. They and `before` together stay within int32.
    __aicore__ inline LocalTensor<int32_t> addends(uint32_t sum = 0) const { return sums(sum, 0)[kZeros]; }

    // to[i] = before + the sum of the first i addends, for n + 1 entries, which S reads; by doubling. Numbers less than
    // 8 apart do not lie at 32-byte boundaries, so that V gathers them.
    __aicore__ inline void add_up(const LocalTensor<int32_t>& to, int64_t before) const {
        const LocalTensor<int32_t> targets[1] = {to};
        const int64_t already[1] = {before};
        add_up_all<1>(targets, already);
    }

    // The same of several sums together, which takes hardly longer than one.
    template <uint32_t num_sums>
    __aicore__ inline void add_up_all(const LocalTensor<int32_t> (&to)[num_sums],
                                      const int64_t (&before)[num_sums]) const {
        static_assert(num_sums <= most_sums);
        for (uint32_t sum = 0; sum < num_sums; ++sum) {
            AscendC::Duplicate(sums(sum, 0), int32_t{0}, static_cast<int32_t>(kZeros));
            AscendC::Duplicate(sums(sum, 1), int32_t{0}, static_cast<int32_t>(kZeros));
        }
        AscendC::PipeBarrier<PIPE_V>();
        // Tensors take turns by name: an index that is not known to the compiler would keep them all on the stack.
        LocalTensor<int32_t> from[num_sums];
        LocalTensor<int32_t> next[num_sums];
        for (uint32_t sum = 0; sum < num_sums; ++sum) {
            from[sum] = sums(sum, 0);
            next[sum] = sums(sum, 1);
        }
        for (uint32_t distance = 1; distance < static_cast<uint32_t>(n_); distance *= 2) {
            const bool gathers = distance < static_cast<uint32_t>(kLaneElems);
            if (gathers) {
                for (uint32_t sum = 0; sum < num_sums; ++sum) {
                    gather_ahead(near(sum), from[sum], distance, n_);
                }
                AscendC::PipeBarrier<PIPE_V>();
            }
            for (uint32_t sum = 0; sum < num_sums; ++sum) {
                AscendC::Add(next[sum][kZeros], from[sum][kZeros], gathers ? near(sum) : from[sum][kZeros - distance],
                             n_);
                const LocalTensor<int32_t> last = from[sum];
                from[sum] = next[sum];
                next[sum] = last;
            }
            AscendC::PipeBarrier<PIPE_V>();
        }
        for (uint32_t sum = 0; sum < num_sums; ++sum) {
            gather_ahead(to[sum], from[sum], 1, n_ + 1);
        }
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t sum = 0; sum < num_sums; ++sum) {
            AscendC::Adds(to[sum], to[sum], static_cast<int32_t>(before[sum]), n_ + 1);
        }
    }

    // Whether nothing is wrong with any row. S may read and write afterwards what V has made.
    __aicore__ inline bool all_good() const {
        int32_t left = static_cast<int32_t>(kLanes);
        while (left / 2 >= n_ && left > kLaneElems) {
            left /= 2;
        }
        const LocalTensor<uint16_t> bits = faults().template ReinterpretCast<uint16_t>();
        while (left > kLaneElems) {
            left /= 2;
            AscendC::Or(bits, bits, bits[static_cast<uint32_t>(2 * left)], 2 * left);
            AscendC::PipeBarrier<PIPE_V>();
        }
        order<AscendC::HardEvent::V_S>();
        const LocalTensor<int64_t> pairs = faults().template ReinterpretCast<int64_t>();
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
    static_assert(most_sums <= 2);

    __aicore__ inline const LocalTensor<int32_t>& faults() const { return areas_[0]; }
    __aicore__ inline const LocalTensor<int32_t>& aux() const { return areas_[1]; }
    __aicore__ inline const LocalTensor<int32_t>& fresh() const { return areas_[2]; }  // not checked yet
    // Of an element of `bytes` bytes: iota times that.
    __aicore__ inline LocalTensor<int32_t> offsets(uint32_t bytes) const { return bytes == 4 ? areas_[3] : areas_[4]; }
    // Of one sum, in two turns.
    __aicore__ inline const LocalTensor<int32_t>& sums(uint32_t sum, uint32_t turn) const {
        return sums_[2 * sum + turn];
    }
    // Numbers that do not lie at 32-byte boundaries.
    __aicore__ inline const LocalTensor<int32_t>& near(uint32_t sum) const { return sum == 0 ? aux() : fresh(); }

    // must_be_zero before the caller's next barrier.
    __aicore__ inline void note_faults(const LocalTensor<int32_t>& values) const {
        const LocalTensor<uint16_t> bits = faults().template ReinterpretCast<uint16_t>();
        AscendC::Or(bits, bits, values.template ReinterpretCast<uint16_t>(), 2 * n_);
    }

    // Of int64, aux() is the high words.
    __aicore__ inline void gather_numbers(const RowValues& values, uint32_t shift) const {
        const uint32_t bytes = values.is_int64() ? 8 : 4;
        const LocalTensor<uint32_t> places = offsets(bytes).template ReinterpretCast<uint32_t>();
        AscendC::Gather(fresh(), values.words(), places, shift * bytes, static_cast<uint32_t>(n_));
        if (values.is_int64()) {
            AscendC::Gather(aux(), values.words(), places, shift * bytes + 4, static_cast<uint32_t>(n_));
        }
        AscendC::PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void clamp(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from, int32_t least,
                                 int64_t most) const {
        AscendC::Maxs(to, from, least, n_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(to, to, static_cast<int32_t>(most), n_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // to[i] = the number `distance` before the i-th one of a sum.
    __aicore__ inline void gather_ahead(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from,
                                        uint32_t distance, int32_t elems) const {
        AscendC::Gather(to, from, offsets(4).template ReinterpretCast<uint32_t>(), (kZeros - distance) * 4,
                        static_cast<uint32_t>(elems));
    }

    __aicore__ inline void gather(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from, uint32_t elem_bytes,
                                  uint32_t base_bytes, int32_t elems) const {
        AscendC::Gather(to, from, offsets(elem_bytes).template ReinterpretCast<uint32_t>(), base_bytes,
                        static_cast<uint32_t>(elems));
        AscendC::PipeBarrier<PIPE_V>();
    }

    // word: 0 for the low words, 1 for the high ones.
    __aicore__ inline void gather_words(const LocalTensor<int32_t>& to, const RowValues& values, uint32_t shift,
                                        uint32_t word) const {
        const uint32_t bytes = values.is_int64() ? 8 : 4;
        gather(to, values.words(), bytes, shift * bytes + word * 4, n_);
    }

    LocalTensor<int32_t> iota_;
    LocalTensor<int32_t> areas_[kOwn + areas];  // of scratch, and behind them
    LocalTensor<int32_t> sums_[2 * most_sums];
    int32_t n_ = 0;
};

}  // namespace dsv4::kernel
