// Slots and pages of units on the CPU, whatever the kind of the pool's address (common/pool_address.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <type_traits>

#include "common/pool_address.h"
#include "cpu/slot_runs.h"

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
        switch (a.kind) {
            case kPages:
            case kSlots:
                return table_slot(pool, request, unit);
            case kMapped:
                return mapped_slot(pool, request, unit);
            case kPageRing: {
                const PoolAddress& of = pools_[a.base];
                const int64_t base =
                    of.kind == kMapped ? mapped_slot(a.base, request, unit) : table_slot(a.base, request, unit);
                return base == kNoSlot ? kNoSlot : page_ring_slot(base, of.page_shift, a);
            }
            case kRequestRing:
                return request_ring_slot(request, unit, a);
            case kBank:
                return request;
            default:
                return kNoSlot;
        }
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
            with_entries(pool, slot_entry_elems(request, first_unit, a),
                         [&](const auto* entries) { pages_of_slots(entries, a, end - begin, out); });
        } else {
            for (int64_t page = begin; page < end; ++page) {
                const int64_t found = slot(pool, request, page << a.page_shift);
                *out++ = found == kNoSlot ? dummy : static_cast<int32_t>(page_of(found, a.page_shift));
            }
        }
    }

    // Whether the slots of the units begin, begin + stride, .. below end of a request are below `limit`, 1 or more,
    // also those that no 32-bit output could hold. False may also mean that a table holds a number far below 0.
    bool all_below(int32_t pool, int64_t request, int64_t begin, int64_t end, int64_t stride, int64_t limit) const {
        const PoolAddress& a = pools_[pool];
        bool below = true;
        if (a.kind == kSlots && begin < end) {
            with_entries(pool, slot_entry_elems(request, begin, a), [&](const auto* entries) {
                below = entries_below(entries, ceil_div(end - begin, stride), stride * unit_columns(a),
                                      limit << a.slot_shift);
            });
            return below;
        }
        for (int64_t unit = begin; unit < end; unit += stride) {
            below = below && slot(pool, request, unit) < limit;
        }
        return below;
    }

  private:
    // Of a pool with a table.
    int64_t table_slot(int32_t pool, int64_t request, int64_t unit) const {
        const PoolAddress& a = pools_[pool];
        if (a.kind == kPages) {
            const int64_t page = entry(pool, page_entry_elems(request, page_of(unit, a.page_shift), a));
            return page > 0 ? slot_of(page, unit, a.page_shift) : kNoSlot;
        }
        const int64_t slot = slot_of_entry(entry(pool, slot_entry_elems(request, unit, a)), a);
        return slot > 0 ? slot : kNoSlot;
    }

    int64_t mapped_slot(int32_t pool, int64_t request, int64_t unit) const {
        const PoolAddress& a = pools_[pool];
        const int64_t base = table_slot(a.base, request, unit);
        const int64_t mapped = base == kNoSlot || base >= a.row_elems ? 0 : entry(pool, base);
        return mapped > 0 ? mapped : kNoSlot;
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

    // By the sign of limit - 1 - entry, which takes half as long as the largest entry does.
    template <typename Entry>
    static bool entries_below(const Entry* entries, int64_t count, int64_t stride, int64_t limit) {
        using Unsigned = std::make_unsigned_t<Entry>;  // differences may wrap
        const auto most = static_cast<Unsigned>(std::min<int64_t>(limit - 1, std::numeric_limits<Entry>::max()));
        Unsigned signs = 0;
        if (stride == 1) {  // a loop of its own, which compilers know how to make wide
            for (int64_t k = 0; k < count; ++k) {
                signs |= most - static_cast<Unsigned>(entries[k]);
            }
        } else {
            for (int64_t k = 0; k < count; ++k) {
                signs |= most - static_cast<Unsigned>(entries[k * stride]);
            }
        }
        return static_cast<Entry>(signs) >= 0;
    }

    template <typename Entry, typename T>
    static void convert_slots(const Entry* entries, const PoolAddress& a, int64_t units, T dummy, T* out) {
        if (a.slot_shift == 0) {
            for (int64_t k = 0; k < units; ++k) {
                out[k] = entries[k] > 0 ? static_cast<T>(entries[k]) : dummy;
            }
            return;
        }
        for (int64_t k = 0; k < units; ++k) {
            const int64_t slot = slot_of_entry(entries[k * unit_columns(a)], a);
            out[k] = slot > 0 ? static_cast<T>(slot) : dummy;
        }
    }

    // The page of every entry at a page's start.
    template <typename Entry>
    static void pages_of_slots(const Entry* entries, const PoolAddress& a, int64_t pages, int32_t* out) {
        const int64_t page_elems = unit_columns(a) << a.page_shift;
        const int32_t shift = std::min<int32_t>(a.slot_shift + a.page_shift, 8 * sizeof(Entry) - 1);  // one is enough
        for (int64_t k = 0; k < pages; ++k) {
            out[k] = static_cast<int32_t>(entries[k * page_elems] >> shift);
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

    template <typename T>
    void write_from_base(int32_t pool, int64_t request, int64_t begin, int64_t end, T dummy, T* out) const {
        const PoolAddress& a = pools_[pool];
        if (a.kind == kMapped) {
            write_mapped(pool, request, begin, end, dummy, out, AsMapped{});
            return;
        }
        const InPageRing in_ring{a, pools_[a.base].page_shift};
        if (pools_[a.base].kind == kMapped) {
            write_mapped(a.base, request, begin, end, dummy, out, in_ring);
        } else {
            const auto of_run = [in_ring](int64_t first, int64_t count, T* run) {
                for (int64_t k = 0; k < count; ++k) {
                    run[k] = static_cast<T>(in_ring(first + k));
                }
                return true;
            };
            write_by_base(a.base, request, begin, end, dummy, out, in_ring, of_run);
        }
    }

    // slot_of(mapped slot) of each unit.
    template <typename T, typename SlotOf>
    void write_mapped(int32_t pool, int64_t request, int64_t begin, int64_t end, T dummy, T* out,
                      const SlotOf& slot_of) const {
        const PoolAddress& a = pools_[pool];
        with_entries(pool, 0, [&](const auto* entries) {
            const auto of_slot = [&](int64_t slot) {
                const int64_t mapped = slot < a.row_elems ? entries[slot] : 0;
                return mapped > 0 ? slot_of(mapped) : kNoSlot;
            };
            const auto of_run = [&](int64_t first, int64_t count, T* run) {
                return slot_of.keeps_31_bits() && first <= a.row_elems - count &&
                       map_run(entries + first, slot_of, count, run);
            };
            write_by_base(a.base, request, begin, end, dummy, out, of_slot, of_run);
        });
    }

    // slot_of(base slot) of each unit, in one pass where the base pool's slots stand in a table as they are. Those of a
    // page follow each other: run_of(first, count, out) writes that many, which compilers know how to make wide, or
    // gives false.
    template <typename T, typename SlotOf, typename RunOf>
    void write_by_base(int32_t base_pool, int64_t request, int64_t begin, int64_t end, T dummy, T* out,
                       const SlotOf& slot_of, const RunOf& run_of) const {
        const PoolAddress& base = pools_[base_pool];
        const auto from = [&](const auto* slots) {
            const int64_t units = end - begin;
            for (int64_t first = 0; first < units; first += kRun) {
                const int64_t count = std::min(units - first, kRun);
                if (count >= kShortRun && is_run(slots + first, count) && run_of(slots[first], count, out + first)) {
                    continue;
                }
                for (int64_t k = first; k < first + count; ++k) {
                    const int64_t found = slots[k] > 0 ? slot_of(static_cast<int64_t>(slots[k])) : kNoSlot;
                    out[k] = found == kNoSlot ? dummy : static_cast<T>(found);
                }
            }
        };
        if (base.kind == kSlots && base.slot_shift == 0) {
            with_entries(base_pool, slot_entry_elems(request, begin, base), from);
        } else {
            write(base_pool, request, begin, end, static_cast<T>(kNoSlot), out);
            from(out);
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
