#include "device/errors.h"
#include "device/iota.h"
#include "device/row_values.h"
#include "kernel_operator.h"
#include "ops/draft_steps/draft_rope.h"
#include "ops/draft_steps/draft_steps_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

struct DraftInputAddresses {
    GM_ADDR lengths;
    GM_ADDR requests;  // not read when the slots are reserved
    GM_ADDR slots;     // reservation or request table
    GM_ADDR cos;
    GM_ADDR sin;
};

struct DraftOutputAddresses {
    GM_ADDR slots;
    GM_ADDR positions;
    GM_ADDR kv_lens;
    GM_ADDR cos;
    GM_ADDR sin;
};

// Each block takes a share of the requests, behind which dummies follow in groups of topk, in tiles. All steps of a
// tile are made at once: MTE2 fetches what the requests own, V turns it into steps, MTE3 stores a row a step.
template <typename bits_t>
class DraftStepsKernel {
  public:
    __aicore__ inline DraftStepsKernel(AscendC::TPipe* pipe, const DraftInputAddresses& in,
                                       const DraftOutputAddresses& out, GM_ADDR error_lanes, const DraftStepsParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpDraftSteps), rope_(pipe, in.cos, in.sin, out.cos, out.sin, p) {
        const uint64_t outputs = static_cast<uint64_t>(draft_output(p.num_steps, 0, p));
        slots_out_ = global<int32_t>(out.slots, outputs);
        positions_out_ = global<int64_t>(out.positions, outputs);
        kv_lens_out_ = global<int32_t>(out.kv_lens, outputs);
        source_ = global<int32_t>(in.slots,
                                  static_cast<uint64_t>(drafts_from_table(p) ? draft_table_entry(p.max_requests, 0, p)
                                                                             : reserved_slots(owned_entries(p), p)));
        stride_ = static_cast<uint32_t>(drafts_from_table(p) ? draft_pitch_elems(p) : p.num_steps);
        make_buffers(pipe, in);
    }

    __aicore__ inline void run() {
        const BlockShare share = block_share(draft_rows(p_), 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        const int64_t tile_rows = draft_tile_rows(p_);
        prepare();
        for (int64_t row = share.begin; row < share.end; row += tile_rows) {
            // What a tile is given starts after everything of the tile before, and after the preparation.
            AscendC::PipeBarrier<PIPE_ALL>();
            tile(row, static_cast<uint32_t>(min_of<int64_t>(tile_rows, share.end - row)));
        }
        errors_.flush();
    }

  private:
    __aicore__ inline void make_buffers(AscendC::TPipe* pipe, const DraftInputAddresses& in) {
        constexpr uint32_t entries = kMaxDraftTileEntries;
        pipe->InitBuffer(entry_buffer_, entries * kDraftEntryBytes);
        pipe->InitBuffer(tile_buffer_, kDraftTileElems * kDraftElemBytes);
        starts_ = entry_buffer_.Get<int32_t>();
        offsets_ = starts_[entries];
        lengths_.init(in.lengths, p_.num_requests, p_.length_is_int64, starts_[2 * entries]);
        requests_.init(in.requests, p_.num_requests, p_.request_is_int64, starts_[4 * entries]);
        source_tile_ = tile_buffer_.Get<int32_t>();
        slots_ = source_tile_[kDraftTileElems];
        positions_ = source_tile_[2 * kDraftTileElems];
        kv_lens_ = source_tile_[3 * kDraftTileElems];
        live_ = source_tile_[4 * kDraftTileElems];
        wide_ = source_tile_[5 * kDraftTileElems].template ReinterpretCast<int64_t>();
    }

    // Where the slots of each entry of a tile start, in bytes; and the RoPE rows of dummies.
    __aicore__ inline void prepare() {
        fill_iota(offsets_, kMaxDraftTileEntries);
        AscendC::Muls(offsets_, offsets_, static_cast<int32_t>(stride_ * sizeof(int32_t)),
                      static_cast<int32_t>(kMaxDraftTileEntries));
        rope_.load_dummies();
    }

    __aicore__ inline void tile(int64_t first_row, uint32_t rows) {
        const int64_t first_entry = first_row * p_.topk;
        const uint32_t entries =
            static_cast<uint32_t>(min_of<int64_t>(static_cast<int64_t>(rows) * p_.topk, p_.num_entries - first_entry));
        const uint32_t lanes = round_up<uint32_t>(entries, kUbBlockBytes / 4);
        const uint32_t owned =
            static_cast<uint32_t>(max_of<int64_t>(0, min_of<int64_t>(rows, p_.num_requests - first_row)));
        fetch(first_row, owned, lanes);
        make_steps(lanes);
        store_steps(first_entry, entries, lanes);
        rope_.write(first_row, rows, starts_);
    }

    // Starts of all lanes, and the slots of the requests' drafts; what nobody owns has slot 0.
    __aicore__ inline void fetch(int64_t first_row, uint32_t owned, uint32_t lanes) {
        AscendC::Duplicate(source_tile_, int32_t{0}, static_cast<int32_t>(lanes * stride_));
        order<HardEvent::V_MTE2>();
        if (owned > 0) {
            lengths_.load_chunk(first_row, owned);
            if (drafts_from_table(p_)) {
                requests_.load_chunk(first_row, owned);
            } else {
                const int64_t slots = reserved_slots(first_row * p_.topk, p_);
                load_padded(source_tile_, source_[static_cast<uint64_t>(slots)],
                            static_cast<uint32_t>(reserved_slots(static_cast<int64_t>(owned) * p_.topk, p_)), 0,
                            int32_t{0});
            }
            order<HardEvent::MTE2_S>();
        }
        uint32_t lane = 0;
        for (uint32_t row = 0; row < owned; ++row) {
            const int64_t start = admit(first_row + row, row);
            for (int32_t draft = 0; draft < p_.topk; ++draft) {
                starts_.SetValue(lane++, static_cast<int32_t>(start));
            }
        }
        for (; lane < lanes; ++lane) {
            starts_.SetValue(lane, static_cast<int32_t>(p_.max_context_len));
        }
        order<HardEvent::S_V>();
        order<HardEvent::MTE2_V>();
    }

    // Position of a request's first draft. Fetches its slots where the table has them.
    __aicore__ inline int64_t admit(int64_t index, uint32_t row) {
        const int64_t length = lengths_.get(row);
        const int64_t request = drafts_from_table(p_) ? requests_.get(row) : 0;
        const int32_t fault = draft_fault(length, request, p_);
        if (fault != kRowValid) {
            errors_.report(fault, index, fault == kUnknownRequest ? request : length);
        }
        const int64_t start = draft_start(length, fault, p_);
        const int64_t live = live_steps(start, p_);
        if (drafts_from_table(p_) && live > 0) {
            load_padded(source_tile_[row * stride_],
                        source_[static_cast<uint64_t>(draft_table_entry(request, start, p_))],
                        static_cast<uint32_t>(live), 0, int32_t{0});
        }
        return start;
    }

    // All steps of a tile, [steps, lanes]. A draft is live below the context: min(max(context - position, 0), 1). A
    // negative slot is nobody's, as draft_slot() has it.
    __aicore__ inline void make_steps(uint32_t lanes) {
        const int32_t count = static_cast<int32_t>(lanes);
        const int32_t all = p_.num_steps * count;
        for (int32_t step = 0; step < p_.num_steps; ++step) {
            AscendC::Adds(positions_[step * lanes], starts_, step, count);
            AscendC::Gather(slots_[step * lanes], source_tile_, offsets_.template ReinterpretCast<uint32_t>(),
                            static_cast<uint32_t>(step * sizeof(int32_t)), lanes);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(live_, positions_, int32_t{-1}, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(live_, live_, static_cast<int32_t>(p_.max_context_len), all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Maxs(live_, live_, int32_t{0}, all);
        AscendC::Maxs(slots_, slots_, int32_t{0}, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(live_, live_, int32_t{1}, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(positions_, positions_, live_, all);
        AscendC::Mul(slots_, slots_, live_, all);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(kv_lens_, positions_, static_cast<int32_t>(draft_kv_len(0)), all);
        AscendC::Cast(wide_, positions_, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(all));
        order<HardEvent::V_MTE3>();
    }

    __aicore__ inline void store_steps(int64_t first_entry, uint32_t entries, uint32_t lanes) {
        const uint32_t steps = static_cast<uint32_t>(p_.num_steps);
        const uint64_t to = static_cast<uint64_t>(draft_output(0, first_entry, p_));
        store_strided_rows(slots_out_[to], slots_, steps, entries, p_.num_entries, lanes);
        store_strided_rows(positions_out_[to], wide_, steps, entries, p_.num_entries, lanes);
        store_strided_rows(kv_lens_out_[to], kv_lens_, steps, entries, p_.num_entries, lanes);
    }

    const DraftStepsParams& p_;
    ErrorLane errors_;
    DraftRope<bits_t> rope_;
    TBuf<TPosition::VECCALC> entry_buffer_, tile_buffer_;
    RowValues lengths_, requests_;
    GlobalTensor<int32_t> source_, slots_out_, kv_lens_out_;
    GlobalTensor<int64_t> positions_out_;
    LocalTensor<int32_t> starts_, offsets_;                                  // of the entries of a tile
    LocalTensor<int32_t> source_tile_, slots_, positions_, kv_lens_, live_;  // of all their steps
    LocalTensor<int64_t> wide_;
    uint32_t stride_;  // elements of source_tile_ from one entry to the next
};

template <typename bits_t>
__aicore__ inline void run_draft_steps(const DraftInputAddresses& in, const DraftOutputAddresses& out,
                                       GM_ADDR error_lanes, const DraftStepsParams& p) {
    AscendC::TPipe pipe;
    DraftStepsKernel<bits_t> op(&pipe, in, out, error_lanes, p);
    op.run();
}

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void draft_steps(GM_ADDR seq_lens, GM_ADDR requests, GM_ADDR source, GM_ADDR rope_cos,
                                                  GM_ADDR rope_sin, GM_ADDR slots, GM_ADDR positions, GM_ADDR kv_lens,
                                                  GM_ADDR cos, GM_ADDR sin, GM_ADDR error_lanes, DraftStepsParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    const dsv4::kernel::DraftInputAddresses in{seq_lens, requests, source, rope_cos, rope_sin};
    const dsv4::kernel::DraftOutputAddresses out{slots, positions, kv_lens, cos, sin};
    if (p.rope_bytes == 4) {
        dsv4::kernel::run_draft_steps<int32_t>(in, out, error_lanes, p);
    } else {
        dsv4::kernel::run_draft_steps<int16_t>(in, out, error_lanes, p);
    }
}
