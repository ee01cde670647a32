// Page tables of a step whose entries lie as a request's table of pages has them, and whose rows fit into a tile: a
// row's live span is a contiguous copy over a fill value. A row is looked at once for all tables.
#pragma once

#include "device/page_slots.h"
#include "device/step_rows.h"

namespace dsv4::kernel {

class PageRows {
  public:
    __aicore__ inline PageRows(StepRows& rows, const StepAddresses& memory)
        : rows_(rows),
          p_(rows.step()),
          memory_(memory),
          starts_(rows.starts()),
          counts_(rows.counts()),
          requests_(rows.requests()) {}

    // int32 [B, columns] of those of such pools that are asked for.
    __aicore__ inline void write() {
        const StagePart part = rows_.part(kStagePages);
        if (part.empty()) {
            return;
        }
        rows_.next_stage();
        start();
        const BlockShare share = part.share(p_.rows.num_rows, 1);
        for (int64_t row = share.begin; row < share.end; row += tile_rows_) {
            const uint32_t count = static_cast<uint32_t>(min_of<int64_t>(tile_rows_, share.end - row));
            make_tile(row, count);
            for (uint32_t i = 0; i < count_; ++i) {
                const Table& t = tables_[i];
                store_strided_rows(t.out[static_cast<uint64_t>(row * t.out_row_elems)], t.tile, count, t.columns,
                                   t.out_row_elems, t.pitch);
            }
        }
    }

  private:
    // A pool's table, what is made of it, and where its rows lie in the tile, `pitch` entries apart.
    struct Table {
        GlobalTensor<int32_t> in, out;
        LocalTensor<int32_t> tile;
        PageSpanRule rule;
        int64_t in_row_elems, out_row_elems;
        int32_t dummy;
        uint32_t columns;
        uint32_t pitch;
        int32_t pool;
    };

    __aicore__ inline void start() {
        uint32_t row_elems = 0;
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            if (!copies_page_rows(p_, pool)) {
                continue;
            }
            Table& t = tables_[count_++];
            t.pool = pool;
            t.columns = static_cast<uint32_t>(p_.page_columns[pool]);
            t.pitch = round_up<uint32_t>(t.columns, kLaneElems);
            // A row's pages lie in columns of their own: longer rows than the output has columns for are bad.
            t.rule = page_span_rule(pool, p_.window, p_.pools[pool].page_shift);
            t.dummy = p_.dummy_pages[pool];
            t.in_row_elems = p_.pools[pool].row_elems;
            t.out_row_elems = p_.page_row_elems[pool];
            t.in = table_of_pages(p_.pools[pool], memory_.tables[pool]);
            t.out = global<int32_t>(at(memory_.fields[kFieldPageTable + pool]),
                                    static_cast<uint64_t>((p_.rows.num_rows - 1) * t.out_row_elems + t.columns));
            row_elems += t.pitch;
        }
        tile_rows_ = static_cast<uint32_t>(kScratchElems) / row_elems;
        uint32_t begin = 0;
        for (uint32_t i = 0; i < count_; ++i) {
            tables_[i].tile = rows_.scratch()[begin];
            begin += tile_rows_ * tables_[i].pitch;
        }
    }

    // Rows [first, first + count), for MTE3.
    __aicore__ inline void make_tile(int64_t first, uint32_t count) {
        order<AscendC::HardEvent::MTE3_V>();
        for (uint32_t i = 0; i < count_; ++i) {
            const Table& t = tables_[i];
            AscendC::Duplicate(t.tile, t.dummy, static_cast<int32_t>(count * t.pitch));
        }
        order<AscendC::HardEvent::V_MTE2>();
        AscendC::PipeBarrier<PIPE_V>();
        for (uint32_t row = 0; row < count; ++row) {
            const uint32_t index = static_cast<uint32_t>(first) + row;
            const int64_t request = requests_.GetValue(index);
            if (request == kNoRequest) {
                mark_padding(row);
            } else {
                const int64_t start = starts_.GetValue(index);
                fetch(row, request, start, start + counts_.GetValue(index));
            }
        }
        order<AscendC::HardEvent::V_MTE3>();
        order<AscendC::HardEvent::MTE2_MTE3>();
    }

    __aicore__ inline void fetch(uint32_t row, int64_t request, int64_t start, int64_t end) const {
        for (uint32_t i = 0; i < count_; ++i) {
            const Table& t = tables_[i];
            const PageSpan span = page_span(t.rule, start, end);
            if (span.begin < span.end) {
                // Up to the 32-byte boundaries around, nothing is named.
                const uint32_t begin = static_cast<uint32_t>(span.begin);
                const uint32_t left = begin % static_cast<uint32_t>(kLaneElems);
                load_padded(t.tile[row * t.pitch + begin - left],
                            t.in[static_cast<uint64_t>(request * t.in_row_elems + span.begin)],
                            static_cast<uint32_t>(span.end) - begin, left, t.dummy);
            }
        }
    }

    __aicore__ inline void mark_padding(uint32_t row) const {
        for (uint32_t i = 0; i < count_; ++i) {
            if (tables_[i].pool == kSwa) {
                AscendC::Duplicate(tables_[i].tile[row * tables_[i].pitch], kPaddingPage, 1);
            }
        }
    }

    StepRows& rows_;
    const StepParams& p_;
    const StepAddresses& memory_;
    LocalTensor<int32_t> starts_, counts_, requests_;
    Table tables_[kNumPools];
    uint32_t count_ = 0;
    uint32_t tile_rows_ = 0;
};

}  // namespace dsv4::kernel
