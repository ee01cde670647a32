#include "device/elements.h"
#include "device/iota.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "device/preload.h"
#include "kernel_operator.h"
#include "ops/rope_tables/rope_tables_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// Each block converts a share of the rows, in tiles of two buffers in turn. A tile arrives as c0, s0, c1, s1, ..; one
// vector of byte offsets, 0, 0, 2, 2, .. elements, gathers both tables from it.
template <typename out_t>
class RopeTables {
  public:
    __aicore__ inline RopeTables(AscendC::TPipe* pipe, GM_ADDR freqs, GM_ADDR cos_out, GM_ADDR sin_out,
                                 const RopeTablesParams& p)
        : p_(p) {
        const int64_t freqs_elems = rope_tables_real_offset_elems(p.max_pos - 1, p.num_pairs, p);
        freqs_ = global<float>(freqs, static_cast<uint64_t>(freqs_elems));
        const uint64_t table_elems = static_cast<uint64_t>(rope_tables_pair_offset_elems(p.max_pos, 0, p));
        tables_[0] = global<out_t>(cos_out, table_elems);
        tables_[1] = global<out_t>(sin_out, table_elems);
        pitch_ = static_cast<uint32_t>(rope_tables_pitch_elems(p));
        tile_rows_ = static_cast<uint32_t>(rope_tables_tile_rows(p));
        pipe->InitBuffer(freqs_buffer_, 2 * kRopeTablesTileElems * sizeof(float));
        pipe->InitBuffer(table_buffer_, 4 * kRopeTablesTileElems * sizeof(out_t));
        pipe->InitBuffer(offset_buffer_, kRopeTablesTileElems * sizeof(int32_t));
        if constexpr (!kIsFloat<out_t>) {
            pipe->InitBuffer(rounded_buffer_, kRopeTablesTileElems * sizeof(out_t));
        }
    }

    __aicore__ inline void run() {
        const BlockShare share = block_share(p_.max_pos, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        make_offsets();
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
        const int64_t tile_pairs = rope_tables_tile_pairs(p_);
        uint32_t turn = 0;
        for (int64_t row = share.begin; row < share.end; row += tile_rows_) {
            const uint32_t rows = static_cast<uint32_t>(min_of<int64_t>(tile_rows_, share.end - row));
            for (int64_t pair = 0; pair < p_.num_pairs; pair += tile_pairs) {
                const int64_t pairs = min_of<int64_t>(tile_pairs, p_.num_pairs - pair);
                const event_t stored = turn == 0 ? EVENT_ID0 : EVENT_ID1;
                AscendC::WaitFlag<HardEvent::MTE3_MTE2>(stored);
                tile(row, rows, pair, static_cast<uint32_t>(2 * pairs), turn);
                AscendC::SetFlag<HardEvent::MTE3_MTE2>(stored);
                turn = 1 - turn;
            }
        }
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
    }

  private:
    // The real part of every element's pair, in bytes from the start of a tile.
    __aicore__ inline void make_offsets() {
        const LocalTensor<int32_t> offsets = offset_buffer_.template Get<int32_t>();
        const int32_t elems = static_cast<int32_t>(tile_rows_ * pitch_);
        fill_iota(offsets, static_cast<uint32_t>(elems));
        AscendC::ShiftRight(offsets, offsets, int32_t{1}, elems);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(offsets, offsets, static_cast<int32_t>(2 * sizeof(out_t)), elems);
    }

    __aicore__ inline void tile(int64_t row, uint32_t rows, int64_t pair, uint32_t row_elems, uint32_t turn) {
        const LocalTensor<float> freqs = freqs_buffer_.template Get<float>()[turn * kRopeTablesTileElems];
        load_strided_rows(freqs, freqs_[rope_tables_real_offset_elems(row, pair, p_)], rows, row_elems,
                          2 * p_.freqs_row_elems, pitch_);
        order<HardEvent::MTE2_V>();
        // The offsets are ready, and the last tile has been gathered from the rounded freqs.
        AscendC::PipeBarrier<PIPE_V>();
        if constexpr (kIsFloat<out_t>) {
            gather(freqs, rows, turn);
        } else {
            const LocalTensor<out_t> rounded = rounded_buffer_.template Get<out_t>();
            AscendC::Cast(rounded, freqs, AscendC::RoundMode::CAST_RINT, rows * pitch_);
            AscendC::PipeBarrier<PIPE_V>();
            gather(rounded, rows, turn);
        }
        order<HardEvent::V_MTE3>();
        for (uint32_t table = 0; table < 2; ++table) {
            store_rows(tables_[table][rope_tables_pair_offset_elems(row, pair, p_)], table_tile(table, turn), rows,
                       row_elems, pitch_);
        }
    }

    __aicore__ inline void gather(const LocalTensor<out_t>& pairs, uint32_t rows, uint32_t turn) {
        const LocalTensor<uint32_t> offsets = offset_buffer_.template Get<uint32_t>();
        for (uint32_t table = 0; table < 2; ++table) {
            gather_elements(table_tile(table, turn), pairs, offsets, table * static_cast<uint32_t>(sizeof(out_t)),
                            rows * pitch_);
        }
    }

    __aicore__ inline LocalTensor<out_t> table_tile(uint32_t table, uint32_t turn) {
        return table_buffer_.template Get<out_t>()[(turn * 2 + table) * kRopeTablesTileElems];
    }

    const RopeTablesParams& p_;
    GlobalTensor<float> freqs_;
    GlobalTensor<out_t> tables_[2];
    TBuf<TPosition::VECCALC> freqs_buffer_, table_buffer_, offset_buffer_, rounded_buffer_;
    uint32_t pitch_;  // elements between two rows of a tile
    uint32_t tile_rows_;
};

template <typename out_t>
__aicore__ inline void run_rope_tables(GM_ADDR freqs, GM_ADDR cos_out, GM_ADDR sin_out, const RopeTablesParams& p) {
    AscendC::TPipe pipe;
    RopeTables<out_t> op(&pipe, freqs, cos_out, sin_out, p);
    op.run();
}

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void rope_tables(GM_ADDR freqs, GM_ADDR cos_out, GM_ADDR sin_out,
                                                  RopeTablesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(3 * sizeof(GM_ADDR) + sizeof(RopeTablesParams), 1);
    if (p.table_type == dsv4::kFloat32) {
        dsv4::kernel::run_rope_tables<float>(freqs, cos_out, sin_out, p);
    } else if (p.table_type == dsv4::kFloat16) {
        dsv4::kernel::run_rope_tables<half>(freqs, cos_out, sin_out, p);
    } else {
        dsv4::kernel::run_rope_tables<bfloat16_t>(freqs, cos_out, sin_out, p);
    }
}
