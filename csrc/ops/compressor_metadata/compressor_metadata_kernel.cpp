#include "common/uneven_share.h"
#include "device/errors.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "device/preload.h"
#include "kernel_operator.h"
#include "ops/compressor_metadata/compressor_metadata_index.h"
#include "ops/compressor_metadata/request_walk.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// Each block writes a share of the output rows, in tiles. Table rows are moved as bits: word_t is an unsigned integer
// of the tables' width.
template <typename word_t>
class CompressorMetadata {
  public:
    __aicore__ inline CompressorMetadata(AscendC::TPipe* pipe, const CompressorMetadataAddresses& memory,
                                         GM_ADDR error_lanes, const CompressorMetadataParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpCompressorMetadata), walk_(pipe, memory, p, &errors_) {
        dim_ = static_cast<uint32_t>(p.rope_dim);
        pitch_ = static_cast<uint32_t>(compressor_pitch_elems(p));
        tile_rows_ = static_cast<uint32_t>(compressor_tile_rows(p));
        groups_in_rope_ = groups_in_rope(p);
        const uint64_t table_elems = dim_ == 0 ? 0 : static_cast<uint64_t>(p.max_pos * p.rope_dim);
        const uint64_t output_elems = static_cast<uint64_t>(p.num_rows * p.rope_dim);
        tables_[0] = global<word_t>(at(memory.rope_cos), table_elems);
        tables_[1] = global<word_t>(at(memory.rope_sin), table_elems);
        outputs_[0] = global<word_t>(at(memory.fields[kCompressorCos]), output_elems);
        outputs_[1] = global<word_t>(at(memory.fields[kCompressorSin]), output_elems);
        slots_ = global<int32_t>(at(memory.fields[kCompressorSlots]),
                                 static_cast<uint64_t>(slot_mapping_offset_elems(p.num_rows, p)));
        positions_ = global<int64_t>(at(memory.fields[kCompressorPositions]), static_cast<uint64_t>(p.num_rows));
        const int64_t entries = p.block_rows > 0 ? block_entry_offset_elems(p.block_rows - 1, p.block_columns, p) : 0;
        block_table_ = global<int32_t>(at(memory.block_table), static_cast<uint64_t>(entries) * block_words());
        pipe->InitBuffer(row_buffer_, max_of<uint32_t>(1, 2 * tile_rows_ * pitch_ * sizeof(word_t)));
        pipe->InitBuffer(slot_buffer_, 2 * tile_rows_ * sizeof(int32_t));
        pipe->InitBuffer(position_buffer_, tile_rows_ * sizeof(int64_t));
        pipe->InitBuffer(column_buffer_, kColumnsPerRow * tile_rows_ * sizeof(int64_t));
    }

    __aicore__ inline void run() {
        const int64_t blocks = AscendC::GetBlockNum();
        const int64_t groups = walk_.survey();
        // Dummy rows are not read from anywhere. Groups past the last row, an error, only make the shares less equal.
        const BlockShare share =
            uneven_block_share(p_.num_rows, groups, kCompressorCutRows, AscendC::GetBlockIdx(), blocks);
        place_ = walk_.find(share.begin);
        for (int64_t row = share.begin; row < share.end; row += tile_rows_) {
            tile(row, min_of<int64_t>(row + tile_rows_, share.end));
        }
        if (groups > p_.num_rows && AscendC::GetBlockIdx() == blocks - 1) {
            report_lost_groups();
        }
        errors_.flush();
    }

  private:
    __aicore__ inline void tile(int64_t begin, int64_t end) {
        // MTE3 has stored the last tile, and S, which it waited for, has read its block table entries. What S and V write
        // comes after the fetching, so that they wait for MTE3 too.
        order<HardEvent::MTE3_MTE2>();
        visit_runs<true>(begin, end);
        order<HardEvent::MTE2_S>();
        visit_runs<false>(begin, end);
        order<HardEvent::S_MTE3>();
        order<HardEvent::MTE2_MTE3>();
        order<HardEvent::V_MTE3>();
        const uint32_t rows = static_cast<uint32_t>(end - begin);
        for (uint32_t table = 0; table < 2; ++table) {
            if (has_rows(table)) {
                store_rows(outputs_[table][static_cast<uint64_t>(begin * p_.rope_dim)], row_tile(table, 0), rows, dim_,
                           pitch_);
            }
        }
        if (wants(p_, kCompressorSlots)) {
            store(slots_[static_cast<uint64_t>(slot_mapping_offset_elems(begin, p_))], slot_buffer_.Get<int32_t>(),
                  static_cast<uint32_t>(slot_mapping_offset_elems(rows, p_)));
        }
        if (wants(p_, kCompressorPositions)) {
            store(positions_[static_cast<uint64_t>(begin)], position_buffer_.Get<int64_t>(), rows);
        }
    }

    // Whether RoPE rows of a table (0: cos, 1: sin) are written.
    __aicore__ inline bool has_rows(uint32_t table) const {
        return dim_ > 0 && wants(p_, kCompressorCos + static_cast<int32_t>(table));
    }

    // int32 words of a block table entry.
    __aicore__ inline uint32_t block_words() const { return p_.block_is_int64 != 0 ? 2 : 1; }

    // Entry of those fetched for a tile.
    __aicore__ inline int64_t block(uint32_t index) {
        const LocalTensor<int32_t> entries = column_buffer_.Get<int32_t>();
        return p_.block_is_int64 != 0 ? entries.ReinterpretCast<int64_t>().GetValue(index)
                                      : static_cast<int64_t>(entries.GetValue(index));
    }

    // Visits the requests of the rows [begin, end) once to fetch their blocks, all with one wait, and once to write the
    // rows.
    template <bool fetch>
    __aicore__ inline void visit_runs(int64_t begin, int64_t end) {
        RequestWalk::Place place = place_;
        uint32_t columns_begin = 0;
        int64_t row = begin;
        while (!walk_.done(place) && place.row < end) {
            const GroupRun run = groups_in_rows(place.groups, place.row, begin, end);
            const uint32_t columns = static_cast<uint32_t>(block_columns_of(run, p_));
            if constexpr (fetch) {
                fetch_blocks(place.table_row, run, columns_begin, columns);
            } else {
                write_run(place.request, run, columns_begin, static_cast<uint32_t>(run.row - begin));
            }
            columns_begin += round_up<uint32_t>(columns, kUbBlockBytes / sizeof(int32_t));
            row = run.row + run.count;
            if (place.row + place.groups.count > end) {
                break;  // the next tile begins within this request
            }
            walk_.advance(&place);
        }
        if constexpr (!fetch) {
            write_dummies(static_cast<uint32_t>(row - begin), static_cast<uint32_t>(end - row));
            place_ = place;
        }
    }

    __aicore__ inline void fetch_blocks(int64_t table_row, const GroupRun& run, uint32_t columns_begin,
                                        uint32_t columns) {
        if (columns > 0) {
            const int64_t entry = block_entry_offset_elems(table_row, block_column(run.first, p_), p_);
            load(column_buffer_.Get<int32_t>()[columns_begin * block_words()],
                 block_table_[static_cast<uint64_t>(entry) * block_words()], columns * block_words());
        }
    }

    // Writes the rows of a run from tile row `tile_row` on. Table rows of neighbouring groups are fetched with one
    // copy, whatever blocks they lie in.
    __aicore__ inline void write_run(int64_t request, const GroupRun& run, uint32_t columns_begin, uint32_t tile_row) {
        const int64_t first_column = block_column(run.first, p_);
        const int64_t end = run.first + run.count;
        int64_t fetched = run.first;  // groups before it have their rows
        for (int64_t group = run.first; group < end;) {
            const int64_t column = block_column(group, p_);
            const int64_t column_end = min_of(end, (column + 1) * p_.block_size);
            int64_t number = kDummyBlock;
            if (column < p_.block_columns) {
                number = block(columns_begin + static_cast<uint32_t>(column - first_column));
            }
            if (!block_fits(number, p_)) {
                errors_.report(kSlotTooLarge, request, number);
                number = kDummyBlock;
            }
            const int64_t placed_end = number >= 0 ? max_of(group, min_of(column_end, groups_in_rope_)) : group;
            for (int64_t placed = group; placed < placed_end; ++placed) {
                write_place(tile_row + static_cast<uint32_t>(placed - run.first), number, block_offset(placed, p_),
                            group_position(placed, p_.ratio));
            }
            if (placed_end < column_end) {
                fetch_rows(run, fetched, placed_end, tile_row);
                write_dummies(tile_row + static_cast<uint32_t>(placed_end - run.first),
                              static_cast<uint32_t>(column_end - placed_end));
                fetched = column_end;
            }
            group = column_end;
        }
        fetch_rows(run, fetched, end, tile_row);
    }

    // Table rows of the groups [begin, end) of a run.
    __aicore__ inline void fetch_rows(const GroupRun& run, int64_t begin, int64_t end, uint32_t tile_row) {
        for (uint32_t table = 0; table < 2; ++table) {
            if (!has_rows(table) || begin >= end) {
                continue;
            }
            load_strided_rows(row_tile(table, tile_row + static_cast<uint32_t>(begin - run.first)),
                              tables_[table][static_cast<uint64_t>(group_position(begin, p_.ratio) * p_.rope_dim)],
                              static_cast<uint32_t>(end - begin), dim_, p_.ratio * p_.rope_dim, pitch_);
        }
    }

    __aicore__ inline void write_dummies(uint32_t tile_row, uint32_t rows) {
        if (rows == 0) {
            return;
        }
        for (uint32_t row = 0; row < rows; ++row) {
            write_place(tile_row + row, kDummyBlock, dummy_offset(p_), kDummyPosition);
        }
        for (uint32_t table = 0; table < 2; ++table) {
            if (has_rows(table)) {
                AscendC::Duplicate(row_tile(table, tile_row), table == 0 ? one() : word_t{0},
                                   static_cast<int32_t>(rows * pitch_));
            }
        }
    }

    __aicore__ inline void write_place(uint32_t tile_row, int64_t block, int64_t offset, int64_t position) {
        if (wants(p_, kCompressorPositions)) {
            position_buffer_.Get<int64_t>().SetValue(tile_row, position);
        }
        if (!wants(p_, kCompressorSlots)) {
            return;
        }
        const LocalTensor<int32_t> slots = slot_buffer_.Get<int32_t>();
        if (p_.pairs != 0) {
            slots.SetValue(2 * tile_row, static_cast<int32_t>(block));
            slots.SetValue(2 * tile_row + 1, static_cast<int32_t>(offset));
        } else {
            slots.SetValue(tile_row, static_cast<int32_t>(flat_slot(block, offset, p_)));
        }
    }

    // 1.0 as bits of the tables' type.
    __aicore__ inline word_t one() const {
        if constexpr (sizeof(word_t) == sizeof(uint32_t)) {
            return 0x3f800000u;
        } else {
            return p_.table_type == kFloat16 ? 0x3c00u : 0x3f80u;
        }
    }

    // The last block has seen every group that has a row; the rest of the walk finds those that have none.
    __aicore__ inline void report_lost_groups() {
        while (!walk_.done(place_)) {
            if (place_.row + place_.groups.count > p_.num_rows) {
                errors_.report(kTooManyGroups, place_.request, place_.row + place_.groups.count);
                return;
            }
            walk_.advance(&place_);
        }
    }

    __aicore__ inline LocalTensor<word_t> row_tile(uint32_t table, uint32_t row) {
        return row_buffer_.template Get<word_t>()[(table * tile_rows_ + row) * pitch_];
    }

    const CompressorMetadataParams& p_;
    ErrorLane errors_;
    RequestWalk walk_;
    RequestWalk::Place place_;  // the request of the next tile's first row, or the end of the walk
    GlobalTensor<word_t> tables_[2];
    GlobalTensor<word_t> outputs_[2];
    GlobalTensor<int32_t> slots_;
    GlobalTensor<int64_t> positions_;
    GlobalTensor<int32_t> block_table_;
    TBuf<TPosition::VECCALC> row_buffer_, slot_buffer_, position_buffer_, column_buffer_;
    int64_t groups_in_rope_;
    uint32_t dim_;    // D
    uint32_t pitch_;  // elements between two rows of a tile
    uint32_t tile_rows_;
};

template <typename word_t>
__aicore__ inline void run_compressor_metadata(const CompressorMetadataAddresses& memory, GM_ADDR error_lanes,
                                               const CompressorMetadataParams& p) {
    AscendC::TPipe pipe;
    CompressorMetadata<word_t> op(&pipe, memory, error_lanes, p);
    op.run();
}

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void compressor_metadata(GM_ADDR error_lanes, CompressorMetadataAddresses memory,
                                                          CompressorMetadataParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(
        sizeof(GM_ADDR) + sizeof(CompressorMetadataAddresses) + sizeof(CompressorMetadataParams), 5);
    if (p.table_type == dsv4::kFloat32) {
        dsv4::kernel::run_compressor_metadata<uint32_t>(memory, error_lanes, p);
    } else {
        dsv4::kernel::run_compressor_metadata<uint16_t>(memory, error_lanes, p);
    }
}
