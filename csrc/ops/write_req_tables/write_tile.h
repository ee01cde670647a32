// Slots on their way into tables: a tile of UB that MTE2 fills, V turns into entries and MTE3 stores, in parts.
#pragma once

#include "device/pipes.h"
#include "device/pools.h"
#include "ops/write_req_tables/write_req_tables_index.h"

namespace dsv4::kernel {

class WriteTile {
  public:
    // entries, wide: kWriteTileUnits each.
    __aicore__ inline WriteTile(const WriteReqTablesParams& p, const PoolAddresses& tables, const PoolAddresses& slots)
        : p_(p), tables_(tables), slots_(slots) {}

    __aicore__ inline void init(const LocalTensor<int32_t>& entries, const LocalTensor<int64_t>& wide) {
        entries_ = entries;
        wide_ = wide;
    }

    // A part that nothing uses any more; where it begins.
    __aicore__ inline uint32_t claim(uint32_t entries) {
        if (used_ + entries > static_cast<uint32_t>(kWriteTileUnits)) {
            // And V, which waits for MTE2, after MTE3.
            order<AscendC::HardEvent::MTE3_MTE2>();
            used_ = 0;
        }
        const uint32_t begin = used_;
        used_ += entries;
        return begin;
    }

    // Slots of a part, behind MTE2, become entries in front of MTE3: of tables of pages of 1 << shift slots, or with 0
    // of slots.
    __aicore__ inline void make_entries(uint32_t begin, uint32_t elems, int32_t shift, bool wide) const {
        const LocalTensor<int32_t> entries = entries_[begin];
        order<AscendC::HardEvent::MTE2_V>();
        AscendC::Maxs(entries, entries, table_entry(INT32_MIN), static_cast<int32_t>(elems));
        if (shift != 0) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::ShiftRight(entries, entries, shift, static_cast<int32_t>(elems));
        }
        if (wide) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Cast(wide_[begin], entries, AscendC::RoundMode::CAST_NONE, elems);
        }
        order<AscendC::HardEvent::V_MTE3>();
    }

    __aicore__ inline bool is_wide(int32_t pool) const { return p_.pools[pool].is_int64 != 0; }

    __aicore__ inline const LocalTensor<int32_t>& entries() const { return entries_; }

    __aicore__ inline GlobalTensor<int32_t> slots(int32_t pool) const {
        return slots_.tensor(pool, p_.pools[pool].loc_elems);
    }

    // Calls store(table of the pool, the entries from `begin` on), in the table's type.
    template <typename Store>
    __aicore__ inline void store(int32_t pool, uint32_t begin, const Store& store) const {
        if (is_wide(pool)) {
            store(table<int64_t>(pool), wide_[begin]);
        } else {
            store(table<int32_t>(pool), entries_[begin]);
        }
    }

  private:
    template <typename T>
    __aicore__ inline GlobalTensor<T> table(int32_t pool) const {
        return global<T>(tables_.address[pool], static_cast<uint64_t>(p_.pools[pool].row_elems * p_.max_requests));
    }

    const WriteReqTablesParams& p_;
    const PoolAddresses& tables_;
    const PoolAddresses& slots_;
    LocalTensor<int32_t> entries_;
    LocalTensor<int64_t> wide_;
    uint32_t used_ = 0;
};

}  // namespace dsv4::kernel
