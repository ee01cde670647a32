// Slots and pages of units on the CPU, whatever the kind of the pool's address (common/pool_address.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "common/pool_address.h"

namespace dsv4::cpu {

// What a unit without a slot has.
constexpr int64_t kNoSlot = -1;

class PoolSlots {
  public:
    // pools, tables: by pool, as check_pool_addresses gives them.
    PoolSlots(const PoolAddress* pools, const std::array<at::Tensor, kNumPools>& tables) : pools_(pools) {
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            entries_[pool] = tables[pool].defined() ? tables[pool].const_data_ptr() : nullptr;
        }
    }

    // Slot of a unit, or kNoSlot. The unit lies within the table; a base slot beyond a mapping is none.
    int64_t slot(int32_t pool, int64_t request, int64_t unit) const {
        const PoolAddress& a = pools_[pool];
        if (a.kind != kPages) {
            return slot_by_rule(pool, request, unit);  // calls this for its base, so that it is not inlined
        }
        const int64_t page = entry(pool, page_entry_elems(request, page_of(unit, a.page_shift), a));
        return page > 0 ? slot_of(page, unit, a.page_shift) : kNoSlot;
    }

    // Slots of the units [begin, end) of a request; `dummy` for those without one.
    template <typename T>
    void write(int32_t pool, int64_t request, int64_t begin, int64_t end, T dummy, T* out) const {
        if (begin >= end) {
            return;
        }
        const PoolAddress& a = pools_[pool];
        if (a.kind == kPages) {
            write_paged(pool, request, begin, end, dummy, out);
        } else if (a.kind == kSlots) {
            with_entries(pool, slot_entry_elems(request, begin, a),
                         [&](const auto* entries) { convert_slots(entries, a, end - begin, dummy, out); });
        } else if (a.kind == kRequestRing) {
            write_ring(request, begin, end, a, out);
        } else if (a.kind == kMapped || a.kind == kPageRing) {
            write_from_base(pool, request, begin, end, dummy, out);
        } else {
            const int64_t found = slot(pool, request, begin);  // the same for every unit
            std::fill_n(out, end - begin, found == kNoSlot ? dummy : static_cast<T>(found));
        }
    }

    // What a page table says of the pages [begin, end) of a request: the entries, also 0 or less; `dummy` where the
    // pool's rule finds nothing.
    void write_pages(int32_t pool, int64_t request, int64_t begin, int64_t end, int32_t dummy, int32_t* out) const {
        if (begin >= end) {
            return;
        }
        const PoolAddress& a = pools_[pool];
        const int64_t first_unit = begin << a.page_shift;
        if (a.kind == kPages) {
            copy_pages(pool, request, begin, end, out);
        } else if (a.kind == kSlots) {
            const int64_t page_elems = static_cast<int64_t>(a.unit_columns) << a.page_shift;
            with_entries(pool, slot_entry_elems(request, first_unit, a), [&](const auto* entries) {
                for (int64_t k = 0; k < end - begin; ++k) {
                    out[k] = static_cast<int32_t>(page_of(slot_of_entry(entries[k * page_elems], a), a.page_shift));
                }
            });
        } else {
            for (int64_t page = begin; page < end; ++page) {
                const int64_t found = slot(pool, request, page << a.page_shift);
                *out++ = found == kNoSlot ? dummy : static_cast<int32_t>(page_of(found, a.page_shift));
            }
        }
    }

    // Whether the mapping of a kMapped pool ends before the base pool's slot of a unit.
    bool beyond_mapping(int32_t pool, int64_t request, int64_t unit) const {
        return slot(pools_[pool].base, request, unit) >= pools_[pool].row_elems;
    }

  private:
    // Of the other kinds.
    int64_t slot_by_rule(int32_t pool, int64_t request, int64_t unit) const {
        const PoolAddress& a = pools_[pool];
        switch (a.kind) {
            case kSlots: {
                const int64_t slot = slot_of_entry(entry(pool, slot_entry_elems(request, unit, a)), a);
                return slot > 0 ? slot : kNoSlot;
            }
            case kMapped: {
                const int64_t base = slot(a.base, request, unit);
                const int64_t mapped = base == kNoSlot || base >= a.row_elems ? 0 : entry(pool, base);
                return mapped > 0 ? mapped : kNoSlot;
            }
            case kPageRing: {
                const int64_t base = slot(a.base, request, unit);
                return base == kNoSlot ? kNoSlot : page_ring_slot(base, pools_[a.base].page_shift, a);
            }
            case kRequestRing:
                return request_ring_slot(request, unit, a);
            case kBank:
                return request;
            default:
                return kNoSlot;
        }
    }

    int64_t entry(int32_t pool, int64_t index) const {
        return pools_[pool].is_int64 ? static_cast<const int64_t*>(entries_[pool])[index]
                                     : static_cast<const int32_t*>(entries_[pool])[index];
    }

    // Calls visit with the entries of a pool's table from `index` on, in their own type.
    template <typename Visit>
    void with_entries(int32_t pool, int64_t index, const Visit& visit) const {
        if (pools_[pool].is_int64) {
            visit(static_cast<const int64_t*>(entries_[pool]) + index);
        } else {
            visit(static_cast<const int32_t*>(entries_[pool]) + index);
        }
    }

    template <typename Entry, typename T>
    static void convert_slots(const Entry* entries, const PoolAddress& a, int64_t units, T dummy, T* out) {
        if (a.unit_columns == 1 && a.slot_shift == 0) {
            for (int64_t k = 0; k < units; ++k) {
                out[k] = entries[k] > 0 ? static_cast<T>(entries[k]) : dummy;
            }
            return;
        }
        for (int64_t k = 0; k < units; ++k) {
            const int64_t slot = slot_of_entry(entries[k * a.unit_columns], a);
            out[k] = slot > 0 ? static_cast<T>(slot) : dummy;
        }
    }

    // A page at a time: its slots follow each other.
    template <typename T>
    void write_paged(int32_t pool, int64_t request, int64_t begin, int64_t end, T dummy, T* out) const {
        const int32_t shift = pools_[pool].page_shift;
        while (begin < end) {
            const int64_t page_end = std::min((page_of(begin, shift) + 1) << shift, end);
            const int64_t first = slot(pool, request, begin);
            for (int64_t unit = begin; unit < page_end; ++unit) {
                *out++ = first == kNoSlot ? dummy : static_cast<T>(first + (unit - begin));
            }
            begin = page_end;
        }
    }

    // Up to the ring's end at a time: slots follow each other.
    template <typename T>
    static void write_ring(int64_t request, int64_t begin, int64_t end, const PoolAddress& a, T* out) {
        while (begin < end) {
            const int64_t run = std::min(end, next_page_start(begin, a.ring_shift)) - begin;
            std::iota(out, out + run, static_cast<T>(request_ring_slot(request, begin, a)));
            begin += run;
            out += run;
        }
    }

    // The base pool's slots first, as many as stay in the cache.
    template <typename T>
    void write_from_base(int32_t pool, int64_t request, int64_t begin, int64_t end, T dummy, T* out) const {
        constexpr int64_t kChunk = 256;
        const PoolAddress& a = pools_[pool];
        int64_t base[kChunk];
        for (; begin < end; begin += kChunk, out += kChunk) {
            const int64_t units = std::min(kChunk, end - begin);
            write(a.base, request, begin, begin + units, kNoSlot, base);
            if (a.kind == kMapped) {
                with_entries(pool, 0, [&](const auto* entries) {
                    for (int64_t k = 0; k < units; ++k) {
                        const int64_t mapped = base[k] == kNoSlot || base[k] >= a.row_elems ? 0 : entries[base[k]];
                        out[k] = mapped > 0 ? static_cast<T>(mapped) : dummy;
                    }
                });
                continue;
            }
            const int32_t page_shift = pools_[a.base].page_shift;
            for (int64_t k = 0; k < units; ++k) {
                out[k] = base[k] == kNoSlot ? dummy : static_cast<T>(page_ring_slot(base[k], page_shift, a));
            }
        }
    }

    // As many entries at a time as follow each other: a ring of columns starts again.
    void copy_pages(int32_t pool, int64_t request, int64_t begin, int64_t end, int32_t* out) const {
        const PoolAddress& a = pools_[pool];
        while (begin < end) {
            const int64_t pages = std::min(end - begin, a.columns - page_column(begin, a));
            with_entries(pool, page_entry_elems(request, begin, a),
                         [&](const auto* entries) { std::copy_n(entries, pages, out); });
            begin += pages;
            out += pages;
        }
    }

    const PoolAddress* pools_;
    std::array<const void*, kNumPools> entries_;
};

}  // namespace dsv4::cpu
