// The slot of one position of each row of a chunk, whatever the kind of the pool's address (common/pool_address.h):
// MTE2 fetches an entry for each row, V makes slots of them.
#pragma once

#include "device/memory.h"
#include "device/pipes.h"
#include "ops/advance_step/advance_step_index.h"

namespace dsv4::kernel {

class PositionSlots {
  public:
    // iota: 0, 1, .. for each row.
    __aicore__ inline PositionSlots(AscendC::TPipe* pipe, const AdvanceStepAddresses& memory,
                                    const AdvanceStepParams& p, const LocalTensor<int32_t>& iota)
        : p_(p), memory_(memory), iota_(iota) {
        pipe->InitBuffer(buffer_, (kPools * (kRows + kBlocks) + 5 * kRows) * sizeof(int32_t));
        areas_ = buffer_.Get<int32_t>();
        scratch_ = areas_[kPools * (kRows + kBlocks)];
        for (const int32_t pool : {kFull, kSwa}) {
            if (wants(p, kAdvancedFullSlots + pool)) {
                need(pool);
            }
        }
    }

    // Fetches what tables say of positions, where 0 is none, of requests; S may read both. MTE2 comes after V by the
    // caller.
    __aicore__ inline void fetch(uint32_t rows, const LocalTensor<int32_t>& requests,
                                 const LocalTensor<int32_t>& positions) {
        rows_ = static_cast<int32_t>(rows);
        requests_ = requests;
        positions_ = positions;
        ready_ = 0;
        if (num_tables_ == 0) {
            return;
        }
        // Where each row has its block.
        AscendC::ShiftLeft(block_bytes(), iota_, kBlockShift, rows_);
        for (uint32_t i = 0; i < num_tables_; ++i) {
            AscendC::Duplicate(tables_[i].blocks, int32_t{0}, rows_ * static_cast<int32_t>(kLaneElems));
        }
        order<AscendC::HardEvent::V_MTE2>();
        for (uint32_t row = 0; row < rows; ++row) {
            const int64_t position = positions.GetValue(row);
            if (position == 0) {
                continue;
            }
            const int64_t request = requests.GetValue(row);
            for (uint32_t i = 0; i < num_tables_; ++i) {
                const Table& table = tables_[i];
                load(table.blocks[row * static_cast<uint32_t>(kLaneElems)],
                     table.entries[static_cast<uint64_t>(unit_entry_elems(request, position, *table.address)
                                                         << table.words_shift)],
                     1);
            }
        }
    }

    // int32 slots of a pool that is asked for, `dummy` in rows without one; V, which comes after MTE2 by the caller.
    __aicore__ inline LocalTensor<int32_t> slots(int32_t pool, int32_t dummy) {
        make(pool);
        const PoolAddress& a = p_.pools[pool];
        const LocalTensor<int32_t> found = made(pool);
        const LocalTensor<int32_t> result = scratch(3 + static_cast<uint32_t>(pool));
        AscendC::Maxs(result, found, int32_t{0}, rows_);
        if (dummy != 0) {
            // A slot is at least as large.
            const int32_t least = a.kind == kPages || a.kind == kSlots || a.kind == kMapped ? 1 : 0;
            const LocalTensor<int32_t> filler = scratch(0);
            clamp(filler, found, least - 1, least);
            AscendC::Adds(filler, filler, -least, rows_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Muls(filler, filler, -dummy, rows_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(result, result, filler, rows_);
        }
        AscendC::PipeBarrier<PIPE_V>();
        return result;
    }

  private:
    static constexpr uint32_t kPools = 4;   // those with a slot for each token
    static constexpr uint32_t kTables = 2;  // what full and swa are made of
    static constexpr uint32_t kRows = static_cast<uint32_t>(kAdvanceChunkRows);
    static constexpr uint32_t kBlocks = kRows * static_cast<uint32_t>(kLaneElems);
    static constexpr int32_t kBlockShift = 5;
    static_assert(kUbBlockBytes == 1 << kBlockShift);

    struct Table {
        GlobalTensor<int32_t> entries;
        LocalTensor<int32_t> blocks;
        const PoolAddress* address;
        int32_t words_shift;  // log2 of the words of an entry; the low one of an entry that fits is the entry
    };

    // Of each pool: slots as its address gives them, and 32-byte blocks of entries.
    __aicore__ inline LocalTensor<int32_t> made(int32_t pool) const {
        return areas_[static_cast<uint32_t>(is_state_pool(pool) ? pool - 2 : pool) * (kRows + kBlocks)];
    }
    __aicore__ inline LocalTensor<int32_t> blocks(int32_t pool) const { return made(pool)[kRows]; }
    __aicore__ inline LocalTensor<int32_t> scratch(uint32_t number) const { return scratch_[number * kRows]; }
    __aicore__ inline LocalTensor<int32_t> block_bytes() const { return scratch(2); }

    // The tables of a pool and those of what its slots are made of.
    __aicore__ inline void need(int32_t pool) {
        const PoolAddress& a = p_.pools[pool];
        if (a.kind == kMapped || a.kind == kPageRing) {
            need(a.base);
        } else if ((a.kind == kPages || a.kind == kSlots) && (needed_ >> pool & 1) == 0) {
            needed_ |= 1 << pool;
            const int32_t words_shift = a.is_int64 != 0 ? 1 : 0;
            const int64_t entries = a.row_elems * (a.requests - 1) + a.columns;
            tables_[num_tables_++] =
                Table{global<int32_t>(at(memory_.tables[pool]), static_cast<uint64_t>(entries << words_shift)),
                      blocks(pool), &a, words_shift};
        }
    }

    // Slots as the pool gives them, 0 or less for none; of rules less than 0.
    __aicore__ inline void make(int32_t pool) {
        if ((ready_ >> pool & 1) != 0) {
            return;
        }
        ready_ |= 1 << pool;
        const PoolAddress& a = p_.pools[pool];
        if (a.kind == kPages) {
            gather(pool);
            from_pages(pool, a);
        } else if (a.kind == kSlots) {
            gather(pool);
            AscendC::ShiftRight(made(pool), made(pool), int32_t{a.slot_shift}, rows_);
        } else if (a.kind == kMapped) {
            make(a.base);
            from_mapping(pool, a);
        } else if (a.kind == kPageRing) {
            make(a.base);
            from_page_ring(pool, a);
        } else {
            from_request(pool, a);
        }
        AscendC::PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void gather(int32_t pool) const {
        AscendC::Gather(made(pool), blocks(pool), block_bytes().template ReinterpretCast<uint32_t>(), uint32_t{0},
                        static_cast<uint32_t>(rows_));
        AscendC::PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void clamp(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& from, int32_t least,
                                 int32_t most) const {
        AscendC::Maxs(to, from, least, rows_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mins(to, to, most, rows_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // to = values % (1 << shift); neither is the other.
    __aicore__ inline void remainder(const LocalTensor<int32_t>& to, const LocalTensor<int32_t>& values,
                                     int32_t shift) const {
        AscendC::ShiftRight(to, values, shift, rows_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::ShiftLeft(to, to, shift, rows_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(to, values, to, rows_);
        AscendC::PipeBarrier<PIPE_V>();
    }

    // Page ids become slots.
    __aicore__ inline void from_pages(int32_t pool, const PoolAddress& a) const {
        const LocalTensor<int32_t> ids = made(pool);
        const LocalTensor<int32_t> has = scratch(0);
        const LocalTensor<int32_t> offsets = scratch(1);
        clamp(has, ids, 0, 1);
        AscendC::ShiftLeft(ids, ids, int32_t{a.page_shift}, rows_);
        remainder(offsets, positions_, a.page_shift);
        AscendC::Add(ids, ids, offsets, rows_);
        AscendC::PipeBarrier<PIPE_V>();
        // No page, no slot.
        AscendC::Mul(ids, ids, has, rows_);
    }

    // S reads the base slots and has MTE2 fetch an entry for each.
    __aicore__ inline void from_mapping(int32_t pool, const PoolAddress& a) const {
        const LocalTensor<int32_t> base = made(a.base);
        const int64_t words = a.is_int64 != 0 ? 2 : 1;
        const GlobalTensor<int32_t> mapping =
            global<int32_t>(at(memory_.tables[pool]), static_cast<uint64_t>(a.row_elems * words));
        AscendC::Duplicate(blocks(pool), int32_t{0}, rows_ * static_cast<int32_t>(kLaneElems));
        // MTE2 too comes after V.
        order<AscendC::HardEvent::V_S>();
        for (uint32_t row = 0; row < static_cast<uint32_t>(rows_); ++row) {
            const int64_t slot = base.GetValue(row);
            if (slot > 0 && slot < a.row_elems) {
                load(blocks(pool)[row * static_cast<uint32_t>(kLaneElems)],
                     mapping[static_cast<uint64_t>(slot * words)], 1);
            }
        }
        order<AscendC::HardEvent::MTE2_V>();
        gather(pool);
    }

    // slot / P * ring + slot % ring, which may be 0; -1 where the base has no slot.
    __aicore__ inline void from_page_ring(int32_t pool, const PoolAddress& a) const {
        const LocalTensor<int32_t> base = made(a.base);
        AscendC::ShiftRight(scratch(1), base, int32_t{p_.pools[a.base].page_shift}, rows_);
        remainder(made(pool), base, a.ring_shift);
        AscendC::ShiftLeft(scratch(1), scratch(1), int32_t{a.ring_shift}, rows_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(made(pool), made(pool), scratch(1), rows_);
        only_where(pool, base);
    }

    // A ring of the request, or its one place.
    __aicore__ inline void from_request(int32_t pool, const PoolAddress& a) const {
        if (a.kind == kRequestRing) {
            remainder(scratch(1), positions_, a.ring_shift);
            AscendC::ShiftLeft(made(pool), requests_, int32_t{a.ring_shift}, rows_);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(made(pool), made(pool), scratch(1), rows_);
        } else {
            AscendC::Adds(made(pool), requests_, int32_t{0}, rows_);
        }
        only_where(pool, positions_);
    }

    // Slots become -1 where `values` are 0 or less.
    __aicore__ inline void only_where(int32_t pool, const LocalTensor<int32_t>& values) const {
        clamp(scratch(0), values, 0, 1);
        AscendC::Adds(made(pool), made(pool), int32_t{1}, rows_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(made(pool), made(pool), scratch(0), rows_);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(made(pool), made(pool), int32_t{-1}, rows_);
    }

    const AdvanceStepParams& p_;
    const AdvanceStepAddresses& memory_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<int32_t> iota_, areas_, scratch_, requests_, positions_;
    Table tables_[kTables];
    uint32_t num_tables_ = 0;
    uint32_t needed_ = 0;  // bit pool: it is one of the tables
    uint32_t ready_ = 0;   // bit pool: its slots are made
    int32_t rows_ = 0;
};

}  // namespace dsv4::kernel
