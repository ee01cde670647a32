// How a pool is addressed: where the slot of a unit of a request stands (docs/spec.md, addressing). Whatever returns
// slots, pages or states asks here; nothing else knows the kinds.
#pragma once

#include "common/pools.h"

// One pool. A launch argument: launch stubs repeat the struct outside its namespace.
struct PoolAddress {
    int64_t row_elems;  // elements between two rows of the table; of a mapping, its entries
    int32_t columns;    // entries in a row of the table
    int32_t requests;   // rows of the table; INT32_MAX where there is none
    int16_t kind;       // dsv4::kNoPool .. dsv4::kBank
    int8_t is_int64;    // entries of the table or mapping; int32 otherwise
    int8_t page_shift;  // log2 of the slots in a page of this pool
    int8_t slot_shift;  // kSlots: log2 of the columns from one unit to the next, and of the entry's slots in one of
                        // this pool
    int8_t ring_shift;  // rings: log2 of the slots of one
    int8_t base;        // kMapped, kPageRing: the pool whose slots the rule starts from
    int8_t reserved;    // keeps the struct free of padding
};

namespace dsv4 {

// The pool does not exist: what an op would return for it is left out.
constexpr int32_t kNoPool = 0;
// A table of pages: unit u of request q lies in the page at [q, (u / P) % columns], 0 or less for none. With fewer
// columns than a request has pages the row is a ring, in which only the live pages of a window stand.
constexpr int32_t kPages = 1;
// A table of slots: at [q, (u + 1) * unit_columns - 1], in units of as many slots; less than one unit for none.
constexpr int32_t kSlots = 2;
// At the base pool's slot of the same token stands this pool's slot, 0 or less for none.
constexpr int32_t kMapped = 3;
// A ring in each page of the base pool: base slot / P * ring + base slot % ring.
constexpr int32_t kPageRing = 4;
// A ring a request: q * ring + u % ring.
constexpr int32_t kRequestRing = 5;
// One place a request: q.
constexpr int32_t kBank = 6;

DSV4_HOST_DEVICE constexpr bool has_pool(const PoolAddress& a) { return a.kind != kNoPool; }

// Kinds whose slot 0 is nobody's, and whose units may have none.
DSV4_HOST_DEVICE constexpr bool may_lack_slots(const PoolAddress& a) {
    return a.kind != kRequestRing && a.kind != kBank;
}

// Kinds that know pages; the others are places of a state that no page table describes.
DSV4_HOST_DEVICE constexpr bool has_pages(const PoolAddress& a) {
    return a.kind == kPages || a.kind == kSlots || a.kind == kMapped;
}

// kPages: column that holds page `page` of a request.
DSV4_HOST_DEVICE constexpr int64_t page_column(int64_t page, const PoolAddress& a) {
    return page_column(page, a.columns);
}

// Entry of a kPages table that holds page `page` of request `request`.
DSV4_HOST_DEVICE constexpr int64_t page_entry_elems(int64_t request, int64_t page, const PoolAddress& a) {
    return request * a.row_elems + page_column(page, a);
}

// kSlots: columns from one unit to the next.
DSV4_HOST_DEVICE constexpr int64_t unit_columns(const PoolAddress& a) { return int64_t{1} << a.slot_shift; }

// Entry of a kSlots table that holds the slot of `unit`.
DSV4_HOST_DEVICE constexpr int64_t slot_entry_elems(int64_t request, int64_t unit, const PoolAddress& a) {
    return request * a.row_elems + (unit + 1) * unit_columns(a) - 1;
}

// Entry of a table of either kind that holds the slot of `unit`, or its page.
DSV4_HOST_DEVICE constexpr int64_t unit_entry_elems(int64_t request, int64_t unit, const PoolAddress& a) {
    return a.kind == kPages ? page_entry_elems(request, page_of(unit, a.page_shift), a)
                            : slot_entry_elems(request, unit, a);
}

DSV4_HOST_DEVICE constexpr int64_t slot_of_entry(int64_t entry, const PoolAddress& a) { return entry >> a.slot_shift; }

DSV4_HOST_DEVICE constexpr int64_t page_ring_slot(int64_t base_slot, int32_t base_page_shift, const PoolAddress& a) {
    return slot_of(page_of(base_slot, base_page_shift), base_slot, a.ring_shift);
}

DSV4_HOST_DEVICE constexpr int64_t request_ring_slot(int64_t request, int64_t unit, const PoolAddress& a) {
    return slot_of(request, unit, a.ring_shift);
}

// Bits between what stands in a table or a mapping and a page: of a pool that knows pages.
DSV4_HOST_DEVICE constexpr int32_t entry_page_shift(const PoolAddress& a) {
    return a.kind == kPages ? 0 : a.page_shift + (a.kind == kSlots ? a.slot_shift : 0);
}

// Units of a request that the table has room for. A ring takes any.
DSV4_HOST_DEVICE constexpr int64_t units_in_table(const PoolAddress& a) {
    return a.kind == kPages   ? static_cast<int64_t>(a.columns) << a.page_shift
           : a.kind == kSlots ? a.columns >> a.slot_shift
                              : INT64_MAX;
}

}  // namespace dsv4
