#include "kernel_operator.h"

#include "device/elements.h"
#include "device/errors.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "ops/rope_gather/rope_gather_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// Each block gathers a share of the output rows in tiles of two buffers in turn. MTE2 fetches the rows of both tables,
// V converts them where types or signs differ, MTE3 stores a tile with one copy a table.
template <typename in_t, typename out_t>
class RopeGather {
 public:
    __aicore__ inline RopeGather(AscendC::TPipe* pipe, GM_ADDR cos, GM_ADDR sin, GM_ADDR positions, GM_ADDR cos_out,
                                 GM_ADDR sin_out, GM_ADDR error_lanes, const RopeGatherParams& p)
        : p_(p), positions_(positions), errors_(pipe, error_lanes, kErrorOpRopeGather) {
        const uint64_t table_elems = static_cast<uint64_t>(rope_table_offset_elems(p.max_pos, p));
        const uint64_t output_elems = static_cast<uint64_t>(rope_output_offset_elems(p.num_positions, p));
        tables_[0] = global<in_t>(cos, table_elems);
        tables_[1] = global<in_t>(sin, table_elems);
        outputs_[0] = global<out_t>(cos_out, output_elems);
        outputs_[1] = global<out_t>(sin_out, output_elems);
        tile_rows_ = static_cast<uint32_t>(rope_gather_tile_rows(p));
        pitch_ = static_cast<uint32_t>(rope_gather_pitch_elems(p));
        pipe->InitBuffer(position_buffer_, 2 * tile_rows_ * sizeof(int64_t));
        pipe->InitBuffer(in_buffer_, 4 * tile_rows_ * pitch_ * sizeof(in_t));
        if (rope_gather_converts(p)) {
            if constexpr (!kSameType<in_t, out_t>) {
                pipe->InitBuffer(out_buffer_, 4 * tile_rows_ * pitch_ * sizeof(out_t));
            }
            pipe->InitBuffer(between_buffer_, tile_rows_ * pitch_ * sizeof(float));
        }
    }

    __aicore__ inline void run() {
        const BlockShare share = block_share(p_.num_positions, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
        uint32_t turn = 0;
        for (int64_t row = share.begin; row < share.end; row += tile_rows_) {
            const uint32_t rows = static_cast<uint32_t>(min_of<int64_t>(tile_rows_, share.end - row));
            const event_t stored = turn == 0 ? EVENT_ID0 : EVENT_ID1;
            AscendC::WaitFlag<HardEvent::MTE3_MTE2>(stored);
            tile(row, rows, turn);
            AscendC::SetFlag<HardEvent::MTE3_MTE2>(stored);
            turn = 1 - turn;
        }
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
        errors_.flush();
    }

 private:
    __aicore__ inline LocalTensor<in_t> in_tile(uint32_t table, uint32_t turn) {
        return in_buffer_.template Get<in_t>()[(turn * 2 + table) * tile_rows_ * pitch_];
    }

    // Rows that keep their type keep their place.
    __aicore__ inline LocalTensor<out_t> out_tile(uint32_t table, uint32_t turn) {
        if constexpr (kSameType<in_t, out_t>) {
            return in_tile(table, turn);
        } else {
            return out_buffer_.template Get<out_t>()[(turn * 2 + table) * tile_rows_ * pitch_];
        }
    }

    __aicore__ inline void tile(int64_t first_row, uint32_t rows, uint32_t turn) {
        if (p_.position_is_int64 != 0) {
            fetch<int64_t>(first_row, rows, turn);
        } else {
            fetch<int32_t>(first_row, rows, turn);
        }
        order<HardEvent::MTE2_V>();
        if (rope_gather_converts(p_)) {
            for (uint32_t table = 0; table < 2; ++table) {
                // The float tile serves both tables, one after the other.
                AscendC::PipeBarrier<PIPE_V>();
                convert(out_tile(table, turn), in_tile(table, turn), between_buffer_.template Get<float>(),
                        rows * pitch_, table == 1 && p_.inverse != 0);
            }
        }
        if (bad_rows_ != 0) {
            mark_bad_rows(rows, turn);
        }
        order<HardEvent::V_MTE3>();
        for (uint32_t table = 0; table < 2; ++table) {
            store_rows(outputs_[table][rope_output_offset_elems(first_row, p_)], out_tile(table, turn), rows,
                       p_.rope_dim, pitch_);
        }
    }

    // Fetches the tile's rows of both tables; neighbouring rows in one copy.
    template <typename index_t>
    __aicore__ inline void fetch(int64_t first_row, uint32_t rows, uint32_t turn) {
        const LocalTensor<index_t> positions = position_tile<index_t>(turn);
        order<HardEvent::S_MTE2>();
        load(positions, global<index_t>(positions_, p_.num_positions)[first_row], rows);
        order<HardEvent::MTE2_S>();
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
                fetch_run(run_position, run_begin, static_cast<uint32_t>(run_rows), turn);
            } else {
                errors_.report(kErrorPositionOutOfRange, first_row + run_begin, run_position);
                bad_rows_ += static_cast<uint32_t>(run_rows);
            }
            run_begin = row;
            run_position = position;
        }
    }

    __aicore__ inline void fetch_run(int64_t position, uint32_t tile_row, uint32_t rows, uint32_t turn) {
        const uint32_t gap_elems = static_cast<uint32_t>(p_.table_row_elems - p_.rope_dim);
        for (uint32_t table = 0; table < 2; ++table) {
            load_rows(in_tile(table, turn)[tile_row * pitch_], tables_[table][rope_table_offset_elems(position, p_)],
                      rows, p_.rope_dim, gap_elems, pitch_);
        }
    }

    __aicore__ inline void mark_bad_rows(uint32_t rows, uint32_t turn) {
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t row = 0; row < rows; ++row) {
            const int64_t position = p_.position_is_int64 != 0
                                         ? position_tile<int64_t>(turn).GetValue(row)
                                         : static_cast<int64_t>(position_tile<int32_t>(turn).GetValue(row));
            if (!rope_position_valid(position, p_)) {
                for (uint32_t table = 0; table < 2; ++table) {
                    fill_nan(out_tile(table, turn)[row * pitch_], p_.rope_dim);
                }
            }
        }
    }

    template <typename index_t>
    __aicore__ inline LocalTensor<index_t> position_tile(uint32_t turn) {
        return position_buffer_.template Get<int64_t>()[turn * tile_rows_].template ReinterpretCast<index_t>();
    }

    const RopeGatherParams& p_;
    GM_ADDR positions_;
    GlobalTensor<in_t> tables_[2];
    GlobalTensor<out_t> outputs_[2];
    TBuf<TPosition::VECCALC> position_buffer_, in_buffer_, out_buffer_, between_buffer_;
    ErrorLane errors_;
    uint32_t tile_rows_;
    uint32_t pitch_;  // elements between two rows of a tile
    uint32_t bad_rows_ = 0;
};

template <typename in_t, typename out_t>
__aicore__ inline void run_rope_gather(GM_ADDR cos, GM_ADDR sin, GM_ADDR positions, GM_ADDR cos_out, GM_ADDR sin_out,
                                       GM_ADDR error_lanes, const RopeGatherParams& p) {
    AscendC::TPipe pipe;
    RopeGather<in_t, out_t> op(&pipe, cos, sin, positions, cos_out, sin_out, error_lanes, p);
    op.run();
}

template <typename in_t>
__aicore__ inline void run_rope_gather_from(GM_ADDR cos, GM_ADDR sin, GM_ADDR positions, GM_ADDR cos_out,
                                            GM_ADDR sin_out, GM_ADDR error_lanes, const RopeGatherParams& p) {
    if (p.output_type == kFloat32) {
        run_rope_gather<in_t, float>(cos, sin, positions, cos_out, sin_out, error_lanes, p);
    } else if (p.output_type == kFloat16) {
        run_rope_gather<in_t, half>(cos, sin, positions, cos_out, sin_out, error_lanes, p);
    } else {
        run_rope_gather<in_t, bfloat16_t>(cos, sin, positions, cos_out, sin_out, error_lanes, p);
    }
}

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void rope_gather(GM_ADDR cos, GM_ADDR sin, GM_ADDR positions, GM_ADDR cos_out,
                                                  GM_ADDR sin_out, GM_ADDR error_lanes, RopeGatherParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    if (p.table_type == dsv4::kFloat32) {
        dsv4::kernel::run_rope_gather_from<float>(cos, sin, positions, cos_out, sin_out, error_lanes, p);
    } else if (p.table_type == dsv4::kFloat16) {
        dsv4::kernel::run_rope_gather_from<half>(cos, sin, positions, cos_out, sin_out, error_lanes, p);
    } else {
        dsv4::kernel::run_rope_gather_from<bfloat16_t>(cos, sin, positions, cos_out, sin_out, error_lanes, p);
    }
}
