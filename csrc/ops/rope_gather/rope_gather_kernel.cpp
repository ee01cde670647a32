#include "device/elements.h"
#include "device/errors.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "device/preload.h"
#include "kernel_operator.h"
#include "ops/rope_gather/rope_gather_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// Each block gathers a share of the output rows in tiles of two buffers in turn. MTE2 fetches the rows of both tables,
// V converts them where types or signs differ, MTE3 stores a tile with one copy a table. Rows are moved as bits: word_t is
// an unsigned integer of the tables' width.
template <typename word_t>
class RopeGather {
 public:
    __aicore__ inline RopeGather(AscendC::TPipe* pipe, GM_ADDR cos, GM_ADDR sin, GM_ADDR positions, GM_ADDR cos_out,
                                 GM_ADDR sin_out, GM_ADDR error_lanes, const RopeGatherParams& p)
        : p_(p), positions_(positions), outputs_{cos_out, sin_out}, errors_(pipe, error_lanes, kErrorOpRopeGather) {
        const uint64_t table_elems = static_cast<uint64_t>(rope_table_offset_elems(p.max_pos, p));
        tables_[0] = global<word_t>(cos, table_elems);
        tables_[1] = global<word_t>(sin, table_elems);
        tile_rows_ = static_cast<uint32_t>(rope_gather_tile_rows(p));
        pitch_ = static_cast<uint32_t>(rope_gather_pitch_elems(p));
        pipe->InitBuffer(position_buffer_, 2 * tile_rows_ * sizeof(int64_t));
        pipe->InitBuffer(in_buffer_, 4 * tile_rows_ * pitch_ * sizeof(word_t));
        if (rope_gather_converts(p)) {
            if (p.table_type != p.output_type) {
                pipe->InitBuffer(out_buffer_, 4 * tile_rows_ * pitch_ * static_cast<uint32_t>(element_bytes(p.output_type)));
            }
            pipe->InitBuffer(between_buffer_, tile_rows_ * pitch_ * sizeof(float));
        }
    }

    __aicore__ inline void run() {
        const BlockShare share = block_share(p_.num_positions, rope_gather_cut_rows(p_), AscendC::GetBlockIdx(),
                                             AscendC::GetBlockNum());
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
        load_positions(share.begin, share.end, 0);
        uint32_t turn = 0;
        for (int64_t row = share.begin; row < share.end; row += tile_rows_) {
            // Those of the next tile come before the rows of this one.
            load_positions(row + tile_rows_, share.end, 1 - turn);
            AscendC::WaitFlag<HardEvent::MTE2_S>(flag_of(turn));
            AscendC::WaitFlag<HardEvent::MTE3_MTE2>(flag_of(turn));
            tile(row, tile_size(row, share.end), turn);
            AscendC::SetFlag<HardEvent::MTE3_MTE2>(flag_of(turn));
            turn = 1 - turn;
        }
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
        errors_.flush();
    }

 private:
    __aicore__ inline event_t flag_of(uint32_t turn) const { return turn == 0 ? EVENT_ID0 : EVENT_ID1; }

    __aicore__ inline uint32_t tile_size(int64_t first_row, int64_t end) const {
        return static_cast<uint32_t>(min_of<int64_t>(tile_rows_, end - first_row));
    }

    // In words of the tables, which have the tile's rows.
    __aicore__ inline uint32_t tile_begin(uint32_t table, uint32_t turn) const {
        return (turn * 2 + table) * tile_rows_ * pitch_;
    }

    __aicore__ inline LocalTensor<word_t> in_tile(uint32_t table, uint32_t turn) {
        return in_buffer_.template Get<word_t>()[tile_begin(table, turn)];
    }

    // Rows that keep their type keep their place.
    template <typename out_t>
    __aicore__ inline LocalTensor<out_t> out_tile(uint32_t table, uint32_t turn) {
        if (p_.table_type == p_.output_type) {
            return in_tile(table, turn).template ReinterpretCast<out_t>();
        }
        return out_buffer_.template Get<out_t>()[tile_begin(table, turn)];
    }

    __aicore__ inline LocalTensor<int64_t> wide_positions(uint32_t turn) {
        return position_buffer_.template Get<int64_t>()[turn * tile_rows_];
    }

    __aicore__ inline LocalTensor<int32_t> narrow_positions(uint32_t turn) {
        return wide_positions(turn).template ReinterpretCast<int32_t>();
    }

    // S has read those of two tiles ago.
    __aicore__ inline void load_positions(int64_t first_row, int64_t end, uint32_t turn) {
        if (first_row >= end) {
            return;
        }
        const uint32_t rows = tile_size(first_row, end);
        const uint64_t all = static_cast<uint64_t>(p_.num_positions);
        order<HardEvent::S_MTE2>();
        if (p_.position_is_int64 != 0) {
            load(wide_positions(turn), global<int64_t>(positions_, all)[static_cast<uint64_t>(first_row)], rows);
        } else {
            load(narrow_positions(turn), global<int32_t>(positions_, all)[static_cast<uint64_t>(first_row)], rows);
        }
        AscendC::SetFlag<HardEvent::MTE2_S>(flag_of(turn));
    }

    __aicore__ inline void tile(int64_t first_row, uint32_t rows, uint32_t turn) {
        if (p_.position_is_int64 != 0) {
            fetch(wide_positions(turn), first_row, rows, turn);
        } else {
            fetch(narrow_positions(turn), first_row, rows, turn);
        }
        order<HardEvent::MTE2_V>();
        if (p_.output_type == kFloat32) {
            finish_tile<float>(first_row, rows, turn);
        } else if (p_.output_type == kFloat16) {
            finish_tile<half>(first_row, rows, turn);
        } else {
            finish_tile<bfloat16_t>(first_row, rows, turn);
        }
    }

    template <typename out_t>
    __aicore__ inline void finish_tile(int64_t first_row, uint32_t rows, uint32_t turn) {
        if (rope_gather_converts(p_)) {
            for (uint32_t table = 0; table < 2; ++table) {
                // The float tile serves both tables, one after the other.
                AscendC::PipeBarrier<PIPE_V>();
                convert_tile(out_tile<out_t>(table, turn), in_tile(table, turn), rows * pitch_,
                             table == 1 && p_.inverse != 0);
            }
        }
        if (bad_rows_ != 0) {
            mark_bad_rows<out_t>(rows, turn);
        }
        order<HardEvent::V_MTE3>();
        const uint64_t elems = static_cast<uint64_t>(rope_output_offset_elems(p_.num_positions, p_));
        for (uint32_t table = 0; table < 2; ++table) {
            store_rows(global<out_t>(outputs_[table], elems)[static_cast<uint64_t>(rope_output_offset_elems(first_row, p_))],
                       out_tile<out_t>(table, turn), rows, p_.rope_dim, pitch_);
        }
    }

    template <typename out_t>
    __aicore__ inline void convert_tile(const LocalTensor<out_t>& to, const LocalTensor<word_t>& from, uint32_t elems,
                                        bool negate) {
        const LocalTensor<float> between = between_buffer_.template Get<float>();
        if constexpr (sizeof(word_t) == sizeof(float)) {
            convert(to, from.template ReinterpretCast<float>(), between, elems, negate);
        } else if (p_.table_type == kFloat16) {
            convert(to, from.template ReinterpretCast<half>(), between, elems, negate);
        } else {
            convert(to, from.template ReinterpretCast<bfloat16_t>(), between, elems, negate);
        }
    }

    // Fetches the tile's rows of both tables; neighbouring rows in one copy.
    template <typename index_t>
    __aicore__ inline void fetch(const LocalTensor<index_t>& positions, int64_t first_row, uint32_t rows, uint32_t turn) {
        const LocalTensor<word_t> tiles[2] = {in_tile(0, turn), in_tile(1, turn)};
        bad_rows_ = 0;
        uint32_t run_begin = 0;
        int64_t run_position = positions.GetValue(0);
        for (uint32_t row = 1; row <= rows; ++row) {
            const int64_t position = row < rows ? static_cast<int64_t>(positions.GetValue(row)) : -1;
            const int64_t run_rows = row - run_begin;
            // A run is all inside the table or all outside.
            if (row < rows && position == run_position + run_rows &&
                rope_position_valid(position, p_) == rope_position_valid(run_position, p_)) {
                continue;
            }
            if (rope_position_valid(run_position, p_)) {
                fetch_run(tiles, run_position, run_begin, static_cast<uint32_t>(run_rows));
            } else {
                errors_.report(kErrorPositionOutOfRange, first_row + run_begin, run_position);
                bad_rows_ += static_cast<uint32_t>(run_rows);
            }
            run_begin = row;
            run_position = position;
        }
    }

    __aicore__ inline void fetch_run(const LocalTensor<word_t>* tiles, int64_t position, uint32_t tile_row, uint32_t rows) {
        const uint32_t gap_elems = static_cast<uint32_t>(p_.table_row_elems - p_.rope_dim);
        const uint64_t from = static_cast<uint64_t>(rope_table_offset_elems(position, p_));
        for (uint32_t table = 0; table < 2; ++table) {
            load_rows(tiles[table][tile_row * pitch_], tables_[table][from], rows, p_.rope_dim, gap_elems, pitch_);
        }
    }

    template <typename out_t>
    __aicore__ inline void mark_bad_rows(uint32_t rows, uint32_t turn) {
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t row = 0; row < rows; ++row) {
            const int64_t position = p_.position_is_int64 != 0
                                         ? wide_positions(turn).GetValue(row)
                                         : static_cast<int64_t>(narrow_positions(turn).GetValue(row));
            if (!rope_position_valid(position, p_)) {
                for (uint32_t table = 0; table < 2; ++table) {
                    fill_nan(out_tile<out_t>(table, turn)[row * pitch_], p_.rope_dim);
                }
            }
        }
    }

    const RopeGatherParams& p_;
    GM_ADDR positions_;
    GM_ADDR outputs_[2];
    GlobalTensor<word_t> tables_[2];
    TBuf<TPosition::VECCALC> position_buffer_, in_buffer_, out_buffer_, between_buffer_;
    ErrorLane errors_;
    uint32_t tile_rows_;
    uint32_t pitch_;  // elements between two rows of a tile
    uint32_t bad_rows_ = 0;
};

template <typename word_t>
__aicore__ inline void run_rope_gather(GM_ADDR cos, GM_ADDR sin, GM_ADDR positions, GM_ADDR cos_out, GM_ADDR sin_out,
                                       GM_ADDR error_lanes, const RopeGatherParams& p) {
    AscendC::TPipe pipe;
    RopeGather<word_t> op(&pipe, cos, sin, positions, cos_out, sin_out, error_lanes, p);
    op.run();
}

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void rope_gather(GM_ADDR cos, GM_ADDR sin, GM_ADDR positions, GM_ADDR cos_out,
                                                  GM_ADDR sin_out, GM_ADDR error_lanes, RopeGatherParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(6 * sizeof(GM_ADDR) + sizeof(RopeGatherParams), 4);
    if (p.table_type == dsv4::kFloat32) {
        dsv4::kernel::run_rope_gather<uint32_t>(cos, sin, positions, cos_out, sin_out, error_lanes, p);
    } else {
        dsv4::kernel::run_rope_gather<uint16_t>(cos, sin, positions, cos_out, sin_out, error_lanes, p);
    }
}
