#include "device/errors.h"
#include "device/iota.h"
#include "device/memory.h"
#include "device/pipes.h"
#include "device/preload.h"
#include "device/row_values.h"
#include "kernel_operator.h"
#include "ops/token_slots/token_slots_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

// Each block takes a share of the tiles of all tables, table after table. MTE2 brings the table entries of a tile's
// requests; V fills the tile with dummies and writes what long runs of neighbouring tokens have, S the rest; V makes
// int64 of it.
class TokenSlots {
  public:
    __aicore__ inline TokenSlots(AscendC::TPipe* pipe, const TokenSlotsAddresses& memory, GM_ADDR error_lanes,
                                 const TokenSlotsParams& p)
        : p_(p), memory_(memory), errors_(pipe, error_lanes, kErrorOpTokenSlots) {
        pipe->InitBuffer(request_buffer_, 3 * kRequestWords * sizeof(int32_t));
        pipe->InitBuffer(entry_buffer_, kTokenTileEntryBytes);
        pipe->InitBuffer(iota_buffer_, kMostTile * sizeof(int32_t));
        pipe->InitBuffer(slot_buffer_, kMostTile * sizeof(int32_t));
        pipe->InitBuffer(wide_buffer_, kMostTile * sizeof(int64_t));
        requests_ = request_buffer_.Get<int32_t>();
        entries_ = entry_buffer_.Get<int32_t>();
        iota_ = iota_buffer_.Get<int32_t>();
        slots_ = slot_buffer_.Get<int32_t>();
        cu_seqlens_.init(at(memory.cu_seqlens), p.num_reqs + 1, p.cu_seqlens_is_int64, requests_);
        seq_lens_.init(at(memory.seq_lens), p.num_reqs, p.seq_lens_is_int64, requests_[kRequestWords]);
    }

    __aicore__ inline void run() {
        fill_iota(iota_, kMostTile);
        const int64_t tiles = token_tiles(p_);
        const BlockShare share = block_share(p_.num_tables * tiles, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        for (int64_t item = share.begin; item < share.end; ++item) {
            use_table(item / tiles);
            tile(item % tiles * p_.tile_tokens);
        }
        errors_.flush();
    }

  private:
    static constexpr uint32_t kMostTile = static_cast<uint32_t>(kMostTokenTile);
    static constexpr uint32_t kLaneElems = static_cast<uint32_t>(kUbBlockBytes / sizeof(int32_t));
    // Of one array of a chunk of requests, which may be int64; cu_seqlens has one more.
    static constexpr uint32_t kRequestWords = 2 * static_cast<uint32_t>(kTokenSlotsChunk) + kLaneElems;
    // Tokens from which on V is faster than S, with the order between both.
    static constexpr int64_t kLongRun = 32;

    // What a request has in a tile.
    struct Run {
        int64_t request;
        CompletedUnits units;
        int64_t first_page;
        Interval columns;
        uint32_t area;  // of its table entries in UB, in int32
    };

    __aicore__ inline void use_table(int64_t table) {
        if (table == table_) {
            return;
        }
        table_ = table;
        t_ = p_.tables[table];
        chunk_end_ = 0;
        words_ = t_.is_int64 != 0 ? 2 : 1;
        const int64_t entries = p_.num_reqs > 0 ? token_slots_entry_elems(p_.num_reqs - 1, t_.columns, t_) : 0;
        pages_ = global<int32_t>(at(memory_.tables[table]), static_cast<uint64_t>(entries) * words_);
        out_ = global<int64_t>(at(memory_.slots[table]), static_cast<uint64_t>(p_.num_tokens));
        first_pages_.init(at(memory_.first_pages[table]), p_.num_reqs, t_.first_pages_is_int64,
                          requests_[2 * kRequestWords]);
    }

    __aicore__ inline void tile(int64_t begin) {
        begin_ = begin;
        end_ = min_of<int64_t>(begin + p_.tile_tokens, p_.num_tokens);
        const uint32_t tokens = static_cast<uint32_t>(end_ - begin_);
        // Requests up to the one that the next tile begins with: whatever cu_seqlens say, some tile looks at each.
        const bool any = p_.num_reqs > 0;
        first_request_ = any && begin_ > 0 ? find(begin_) : 0;
        last_request_ = any && end_ < p_.num_tokens ? find(end_) : p_.num_reqs - 1;
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Duplicate(slots_, static_cast<int32_t>(kTokenSlotDummy), static_cast<int32_t>(tokens));
        AscendC::PipeBarrier<PIPE_V>();
        order<HardEvent::S_MTE2>();
        each_run([this](const Run& run) { fetch(run); });
        order<HardEvent::MTE2_S>();
        if (t_.ratio_shift == 0) {
            each_page([this](int64_t lane, int64_t slot, int64_t units) { write_by_vector(lane, slot, units); });
        }
        order<HardEvent::V_S>();
        each_page([this](int64_t lane, int64_t slot, int64_t units) { write_by_scalar(lane, slot, units); });
        order<HardEvent::S_V>();
        order<HardEvent::MTE3_V>();
        AscendC::Cast(wide_buffer_.Get<int64_t>(), slots_, AscendC::RoundMode::CAST_NONE, tokens);
        order<HardEvent::V_MTE3>();
        store(out_[static_cast<uint64_t>(begin_)], wide_buffer_.Get<int64_t>(), tokens);
    }

    // The last request that starts at the token or before it.
    __aicore__ inline int64_t find(int64_t token) {
        int64_t chunk = 0;
        load_chunk(chunk);
        while (chunk_end_ < p_.num_reqs && cu_seqlens_.get(static_cast<uint32_t>(chunk_end_ - chunk_begin_)) <= token) {
            chunk += kTokenSlotsChunk;
            load_chunk(chunk);
        }
        uint32_t low = 0;
        uint32_t high = static_cast<uint32_t>(chunk_end_ - chunk_begin_);
        while (high - low > 1) {
            const uint32_t middle = (low + high) / 2;
            if (cu_seqlens_.get(middle) <= token) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return chunk_begin_ + low;
    }

    // Requests from `request` on, the first of a chunk.
    __aicore__ inline void load_chunk(int64_t request) {
        if (request == chunk_begin_ && chunk_end_ > 0) {
            return;
        }
        chunk_begin_ = request;
        chunk_end_ = min_of<int64_t>(chunk_begin_ + kTokenSlotsChunk, p_.num_reqs);
        const uint32_t count = static_cast<uint32_t>(chunk_end_ - chunk_begin_);
        order<HardEvent::S_MTE2>();
        cu_seqlens_.load_chunk(chunk_begin_, count + 1);
        seq_lens_.load_chunk(chunk_begin_, count);
        if (t_.has_first_pages != 0) {
            first_pages_.load_chunk(chunk_begin_, count);
        }
        order<HardEvent::MTE2_S>();
    }

    // Visits what the tile's requests have in it.
    template <typename Visit>
    __aicore__ inline void each_run(const Visit& visit) {
        uint32_t area = 0;
        int64_t done = begin_;  // a token that bad offsets give to two requests is the first one's
        for (int64_t request = first_request_; request <= last_request_; ++request) {
            load_chunk(request / kTokenSlotsChunk * kTokenSlotsChunk);
            const uint32_t index = static_cast<uint32_t>(request - chunk_begin_);
            const int64_t begin = cu_seqlens_.get(index);
            const int64_t end = cu_seqlens_.get(index + 1);
            const int64_t seq_len = seq_lens_.get(index);
            const int32_t fault = token_slots_fault(begin, end, seq_len, p_.num_tokens);
            if (fault != kTokensValid) {
                const bool of_offsets = fault == kBadOffsets || fault == kBeyondOutputs;
                errors_.report(fault, request, of_offsets ? end : seq_len);
                continue;
            }
            const int64_t from = max_of(begin, done);
            const int64_t to = min_of(end, end_);
            if (from >= to || seq_len == 0) {
                continue;
            }
            done = to;
            const CompletedUnits units = completed_units(from, to, end, seq_len, t_.ratio_shift);
            const int64_t first_page = t_.has_first_pages != 0 ? first_pages_.get(index) : 0;
            const Interval columns = columns_of(units.first, units.end, first_page, t_);
            if (columns.begin < columns.end) {
                visit(Run{request, units, first_page, columns, area});
                area += round_up(static_cast<uint32_t>(columns.end - columns.begin) * words_, kLaneElems);
            }
        }
    }

    __aicore__ inline void fetch(const Run& run) {
        const int64_t entry = token_slots_entry_elems(run.request, run.columns.begin, t_);
        load(entries_[run.area], pages_[static_cast<uint64_t>(entry) * words_],
             static_cast<uint32_t>(run.columns.end - run.columns.begin) * words_);
    }

    // Visits the tokens of the tile that complete units of one page: the lane of the first, its slot, how many.
    template <typename Visit>
    __aicore__ inline void each_page(const Visit& visit) {
        each_run([&](const Run& run) {
            for (int64_t column = run.columns.begin; column < run.columns.end; ++column) {
                const int64_t page = entry(run.area, static_cast<uint32_t>(column - run.columns.begin));
                if (page < t_.lowest_page) {
                    continue;
                }
                if (!page_fits(page, t_)) {
                    errors_.report(kPageTooLarge, run.request, page);
                    continue;
                }
                const Interval units = units_in_column(run.units.first, run.units.end, column, run.first_page, t_);
                visit(token_of(units.begin, run.units, t_) - begin_, unit_slot(page, units.begin, t_),
                      units.end - units.begin);
            }
        });
    }

    __aicore__ inline int64_t entry(uint32_t area, uint32_t index) const {
        return t_.is_int64 != 0 ? entries_[area].ReinterpretCast<int64_t>().GetValue(index)
                                : static_cast<int64_t>(entries_.GetValue(area + index));
    }

    // Lanes of a run, of ratio 1, that S writes: up to a boundary for V.
    __aicore__ inline int64_t scalar_lanes(int64_t lane, int64_t units) const {
        return units < kLongRun ? units : round_up<int64_t>(lane, kLaneElems) - lane;
    }

    __aicore__ inline void write_by_vector(int64_t lane, int64_t slot, int64_t units) {
        const int64_t done = scalar_lanes(lane, units);
        if (done < units) {
            AscendC::Adds(slots_[static_cast<uint32_t>(lane + done)], iota_, static_cast<int32_t>(slot + done),
                          static_cast<int32_t>(units - done));
        }
    }

    __aicore__ inline void write_by_scalar(int64_t lane, int64_t slot, int64_t units) {
        const int64_t count = t_.ratio_shift == 0 ? scalar_lanes(lane, units) : units;
        for (int64_t unit = 0; unit < count; ++unit) {
            slots_.SetValue(static_cast<uint32_t>(lane + (unit << t_.ratio_shift)), static_cast<int32_t>(slot + unit));
        }
    }

    const TokenSlotsParams& p_;
    const TokenSlotsAddresses& memory_;
    ErrorLane errors_;
    TBuf<TPosition::VECCALC> request_buffer_, entry_buffer_, iota_buffer_, slot_buffer_, wide_buffer_;
    LocalTensor<int32_t> requests_, entries_, iota_, slots_;
    RowValues cu_seqlens_, seq_lens_, first_pages_;
    int64_t table_ = -1;
    TokenSlotsTable t_{};
    uint32_t words_ = 1;  // int32 of a table entry
    GlobalTensor<int32_t> pages_;
    GlobalTensor<int64_t> out_;
    int64_t begin_ = 0;  // of the tile, in tokens
    int64_t end_ = 0;
    int64_t first_request_ = 0;  // that may have tokens in the tile
    int64_t last_request_ = 0;
    int64_t chunk_begin_ = 0;  // requests in UB
    int64_t chunk_end_ = 0;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void token_slots(GM_ADDR error_lanes, TokenSlotsAddresses memory, TokenSlotsParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(sizeof(GM_ADDR) + sizeof(TokenSlotsAddresses) + sizeof(TokenSlotsParams), 2);
    AscendC::TPipe pipe;
    dsv4::kernel::TokenSlots op(&pipe, memory, error_lanes, p);
    op.run();
}
