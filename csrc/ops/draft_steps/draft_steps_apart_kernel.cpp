#include "device/preload.h"
#include "kernel_operator.h"
#include "ops/draft_steps/draft_rope.h"
#include "ops/draft_steps/draft_tile.h"

namespace dsv4::kernel {

// RoPE rows of one base, each step's in tensors of its own, [N, D].
class RowsApart {
  public:
    __aicore__ inline RowsApart(const DraftStepAddresses* steps, int32_t base, const DraftStepsParams& p)
        : steps_(steps), base_(base), p_(p) {}

    // Of table 0 or 1 in a step, from an entry on.
    __aicore__ inline GlobalTensor<int16_t> from(uint32_t table, uint32_t step, int64_t entry) const {
        const uint64_t address = table == 0 ? steps_[step].cos[base_] : steps_[step].sin[base_];
        const uint64_t halves = static_cast<uint64_t>(draft_rope_halves(p_.num_entries, p_));
        return global<int16_t>(at(address), halves)[static_cast<uint64_t>(draft_rope_halves(entry, p_))];
    }

  private:
    const DraftStepAddresses* steps_;
    int32_t base_;
    const DraftStepsParams& p_;
};

// As DraftStepsKernel, but for the stores: each step has buffers of its own.
class DraftsApartKernel {
  public:
    __aicore__ inline DraftsApartKernel(AscendC::TPipe* pipe, const DraftsApartAddresses& memory, GM_ADDR error_lanes,
                                        const DraftsApartParams& p)
        : p_(p),
          memory_(memory),
          tile_(pipe, DraftSources{&memory.block_table, 0, memory.last_positions, 0}, error_lanes, p.steps),
          rope_(pipe, p.steps, kDraftsApartElems) {
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(kDraftsApartElems * sizeof(int32_t)));
        iota_ = buffer_.Get<int32_t>();
        halves_ = iota_[kPairElems + kLaneElems];
        counts_ = halves_[kPairElems];
        seq_lens_.init(at(memory.seq_lens), p.steps.num_requests, p.keys_are_int64, counts_[kMaxDraftTileEntries]);
        tile_.prepare();
        prepare_pairs();
    }

    __aicore__ inline void run() {
        tile_.every_tile([&](int64_t first_row, uint32_t rows) {
            tile_.make(first_row, rows);
            count_keys();
            if (p_.pairs != 0) {
                make_pairs();
            }
            if (p_.has_offsets != 0) {
                const int32_t first = static_cast<int32_t>(tile_.first_entry());
                AscendC::Adds(tile_.positions(), iota_, first, static_cast<int32_t>(kMaxDraftTileEntries + kLaneElems));
            }
            order<HardEvent::V_MTE3>();
            for (uint32_t step = 0; step < static_cast<uint32_t>(p_.steps.num_steps); ++step) {
                store_step(step);
            }
            for (int32_t base = 0; base < p_.num_bases; ++base) {
                order<HardEvent::V_MTE2>();
                rope_.start(memory_.rope_cos[base], memory_.rope_sin[base]);
                order<HardEvent::MTE2_V>();
                rope_.write(first_row, rows, tile_.starts(), tile_.latest_start(),
                            RowsApart(memory_.steps, base, p_.steps));
            }
        });
    }

  private:
    // Where the halves of pairs lie from source() on, in bytes: element k is that of slot k / 2, of pages where k is
    // even, of offsets, which stand in the place of the slots, where it is odd.
    __aicore__ inline void prepare_pairs() {
        constexpr int32_t count = static_cast<int32_t>(kPairElems);
        constexpr int32_t tile_bytes = static_cast<int32_t>(kDraftTileElems * sizeof(int32_t));
        const LocalTensor<int32_t> odd = tile_.live();
        fill_iota(iota_, static_cast<uint32_t>(kPairElems + kLaneElems));
        AscendC::ShiftRight(halves_, iota_, int32_t{1}, count);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(odd, halves_, int32_t{1}, count);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(odd, iota_, odd, count);
        AscendC::Muls(halves_, halves_, static_cast<int32_t>(sizeof(int32_t)), count);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(odd, odd, tile_bytes, count);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(halves_, halves_, odd, count);
    }

    // Keys of all steps, in spare(): those behind the context count from 1 again; what is no request's, or padding, has
    // none.
    __aicore__ inline void count_keys() {
        constexpr int32_t none = -(int32_t{1} << 30);
        const uint32_t owned = tile_.owned();
        const uint32_t lanes = tile_.lanes();
        if (owned > 0) {
            seq_lens_.load_chunk(tile_.first_entry(), owned);
            order<HardEvent::MTE2_S>();
        }
        for (uint32_t lane = 0; lane < lanes; ++lane) {
            const bool counts = lane < owned && counts_keys(tile_.length_of(lane));
            counts_.SetValue(lane, counts ? static_cast<int32_t>(keys_before(seq_lens_.get(lane), p_.steps)) : none);
        }
        order<HardEvent::S_V>();
        const LocalTensor<int32_t> keys = tile_.spare();
        const LocalTensor<int32_t> over = tile_.live();
        const int32_t context = static_cast<int32_t>(p_.steps.max_context_len);
        const int32_t all = p_.steps.num_steps * static_cast<int32_t>(lanes);
        for (int32_t step = 0; step < p_.steps.num_steps; ++step) {
            AscendC::Adds(keys[step * lanes], counts_, step + 1, static_cast<int32_t>(lanes));
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Maxs(keys, keys, int32_t{0}, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(over, keys, -context, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Maxs(over, over, int32_t{0}, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(over, over, int32_t{1}, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(over, over, -context, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(keys, keys, over, all);
    }

    // Pairs of all steps, in wide().
    __aicore__ inline void make_pairs() {
        const uint32_t lanes = tile_.lanes();
        const int32_t all = p_.steps.num_steps * static_cast<int32_t>(lanes);
        const int32_t shift = p_.steps.pools[p_.steps.pool].page_shift;
        const LocalTensor<int32_t> slots = tile_.slots(), pages = tile_.source(), firsts = tile_.live();
        AscendC::ShiftRight(pages, slots, shift, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(firsts, pages, shift, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(slots, slots, firsts, all);
        AscendC::PipeBarrier<PIPE_V>();
        const LocalTensor<int32_t> pairs = tile_.wide().ReinterpretCast<int32_t>();
        for (uint32_t step = 0; step < static_cast<uint32_t>(p_.steps.num_steps); ++step) {
            AscendC::Gather(pairs[2 * step * lanes], pages, halves_.ReinterpretCast<uint32_t>(),
                            static_cast<uint32_t>(step * lanes * sizeof(int32_t)), 2 * lanes);
        }
    }

    __aicore__ inline void store_step(uint32_t step) {
        const DraftStepAddresses& out = memory_.steps[step];
        const uint64_t all = static_cast<uint64_t>(p_.steps.num_entries);
        const uint64_t to = static_cast<uint64_t>(tile_.first_entry());
        const uint32_t from = step * tile_.lanes(), entries = tile_.entries();
        if (p_.pairs != 0) {
            store(global<int64_t>(at(out.slots), all)[to], tile_.wide()[from], entries);
        } else {
            store(global<int32_t>(at(out.slots), all)[to], tile_.slots()[from], entries);
        }
        store(global<int32_t>(at(out.kv_lens), all)[to], tile_.spare()[from], entries);
        if (p_.has_offsets != 0) {
            // The last one is behind all entries.
            const uint32_t more = to + entries == all ? 1 : 0;
            store(global<int32_t>(at(out.cu_seqlens), all + 1)[to], tile_.positions(), entries + more);
        }
    }

    const DraftsApartParams& p_;
    const DraftsApartAddresses& memory_;
    DraftTile<true> tile_;
    DraftRope rope_;
    TBuf<TPosition::VECCALC> buffer_;
    RowValues seq_lens_;
    LocalTensor<int32_t> iota_, halves_;
    LocalTensor<int32_t> counts_;  // lengths of the entries of a tile
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void draft_steps_apart(GM_ADDR error_lanes, DraftsApartAddresses memory,
                                                        DraftsApartParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(sizeof(GM_ADDR) + sizeof(DraftsApartAddresses) + sizeof(DraftsApartParams), 5);
    AscendC::TPipe pipe;
    dsv4::kernel::DraftsApartKernel op(&pipe, memory, error_lanes, p);
    op.run();
}
