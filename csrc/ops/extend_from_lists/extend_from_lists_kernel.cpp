#include "device/errors.h"
#include "device/iota.h"
#include "device/memory.h"
#include "device/preload.h"
#include "device/row_values.h"
#include "kernel_operator.h"
#include "ops/extend_from_lists/extend_from_lists_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

struct ExtendRowInputs {
    GM_ADDR requests;
    GM_ADDR prefixes;
    GM_ADDR seqs;
    GM_ADDR last_locs;
};

struct ExtendMemory {
    GM_ADDR full_pages;
    GM_ADDR swa_pages;
    GM_ADDR c128_pages;
    GM_ADDR mapping;
    GM_ADDR table;
    GM_ADDR owners;
    GM_ADDR full;
    GM_ADDR swa;
    GM_ADDR c4;
    GM_ADDR c128;
    GM_ADDR replaced;
};

// Every block walks over all rows with running totals, and works on what lies in its share of the tokens and of the
// groups of 128. It cuts them into parts of one page each and takes a batch of parts at a time: MTE2 brings the pages
// of the batch, which lie next to each other in the lists, and what started pages hold; S makes the first slot of each
// part, V the others, MTE3 writes them to the outputs and to the mapping, or the pages to the table.
class ExtendFromLists {
  public:
    __aicore__ inline ExtendFromLists(AscendC::TPipe* pipe, const ExtendRowInputs& inputs, const ExtendMemory& memory,
                                      GM_ADDR error_lanes, const ExtendFromListsParams& p)
        : p_(p), errors_(pipe, error_lanes, kErrorOpExtendFromLists) {
        full_pages_ = global<int64_t>(memory.full_pages, static_cast<uint64_t>(p.full_pages));
        swa_pages_ = global<int64_t>(memory.swa_pages, static_cast<uint64_t>(p.swa_pages));
        c128_pages_ = global<int64_t>(memory.c128_pages, static_cast<uint64_t>(p.c128_pages));
        mapping_ = global<int64_t>(memory.mapping, static_cast<uint64_t>(p.num_slots));
        table_ = global<int32_t>(memory.table, static_cast<uint64_t>(p.max_requests * p.table_row_elems));
        owners_ = global<int32_t>(memory.owners, static_cast<uint64_t>(p.num_owners));
        full_ = global<int32_t>(memory.full, static_cast<uint64_t>(p.num_tokens));
        swa_ = global<int64_t>(memory.swa, static_cast<uint64_t>(p.num_tokens));
        c4_ = global<int32_t>(memory.c4, static_cast<uint64_t>(p.num_c4));
        c128_ = global<int32_t>(memory.c128, static_cast<uint64_t>(p.num_c128));
        replaced_ = global<int32_t>(memory.replaced, static_cast<uint64_t>(p.num_replaced));
        pipe->InitBuffer(input_buffer_, 4 * kExtendChunkRows * sizeof(int64_t));
        pipe->InitBuffer(iota_buffer_, kExtendTileUnits * sizeof(int32_t));
        pipe->InitBuffer(slot_buffer_, 2 * kExtendTileUnits * sizeof(int32_t));
        pipe->InitBuffer(group_buffer_, kGroupElems * sizeof(int32_t));
        pipe->InitBuffer(wide_buffer_, kExtendTileUnits * sizeof(int64_t));
        pipe->InitBuffer(page_buffer_, 2 * kExtendTileParts * sizeof(int64_t));
        pipe->InitBuffer(lane_buffer_, 2 * kExtendTileParts * kUbBlockBytes);
        pipe->InitBuffer(one_buffer_, kUbBlockBytes);
        const LocalTensor<int32_t> chunk = input_buffer_.Get<int32_t>();
        requests_.init(inputs.requests, p.num_rows, p.request_is_int64, chunk);
        prefixes_.init(inputs.prefixes, p.num_rows, p.prefix_is_int64, chunk[2 * kExtendChunkRows]);
        seqs_.init(inputs.seqs, p.num_rows, p.seq_is_int64, chunk[4 * kExtendChunkRows]);
        last_locs_.init(inputs.last_locs, p.num_rows, p.last_is_int64, chunk[6 * kExtendChunkRows]);
        iota_ = iota_buffer_.Get<int32_t>();
        full_slots_ = slot_buffer_.Get<int32_t>();
        swa_slots_ = full_slots_[kExtendTileUnits];
        group_slots_ = group_buffer_.Get<int32_t>();
        entries_ = wide_buffer_.Get<int64_t>();
        pages_ = page_buffer_.Get<int64_t>();
        lanes_ = lane_buffer_.Get<int32_t>();
        new_pages_ = lanes_[kExtendTileParts * kLaneWords];
        one_ = one_buffer_.Get<int32_t>();
    }

    __aicore__ inline void run() {
        fill_iota(iota_, kExtendTileUnits);
        AscendC::Duplicate(one_, int32_t{1}, static_cast<int32_t>(kLaneWords));
        const int64_t block = AscendC::GetBlockIdx();
        const int64_t blocks = AscendC::GetBlockNum();
        tokens_ = block_share(p_.num_tokens, kLaneWords, block, blocks);
        groups_ = block_share(p_.num_c128, kLaneWords, block, blocks);
        const BlockShare own = block_share(p_.num_rows, 1, block, blocks);
        for (int64_t first = 0; first < p_.num_rows; first += kExtendChunkRows) {
            const uint32_t rows = static_cast<uint32_t>(min_of<int64_t>(kExtendChunkRows, p_.num_rows - first));
            load_chunk(first, rows);
            for (uint32_t i = 0; i < rows; ++i) {
                pass(read(i), first + i, first + i >= own.begin && first + i < own.end);
            }
        }
        flush_groups();
        flush_tokens();
        fill_the_rest();
        errors_.flush();
    }

  private:
    static constexpr uint32_t kLaneWords = static_cast<uint32_t>(kUbBlockBytes / sizeof(int32_t));
    static constexpr uint32_t kLaneWides = static_cast<uint32_t>(kUbBlockBytes / sizeof(int64_t));
    // Slots of the groups that the tokens of a tile complete; those of each part start at a block.
    static constexpr uint32_t kGroupElems = kExtendTileUnits / kRatioC4 + kExtendTileParts * kLaneWords;

    // Consecutive entries of an output, and where they lie in UB.
    struct Run {
        int64_t entry;
        uint32_t units;
        uint32_t area;
    };

    // Where a part's first slot comes from. listed: place in a list, or one of these.
    static constexpr int64_t kNone = -1;     // no slots: zeros
    static constexpr int64_t kStarted = -2;  // the page that the row has started

    struct TokenPart {
        int64_t row;  // index, for errors
        int64_t token;
        int64_t full_listed;
        int64_t swa_listed;
        int64_t last_loc;    // kStarted
        int64_t after_last;  // tokens from there on to the part's first one
    };

    struct GroupPart {
        int64_t row;
        int64_t group;
        int64_t listed;
        int64_t table_elems;
    };

    __aicore__ inline void load_chunk(int64_t first, uint32_t rows) {
        order<HardEvent::S_MTE2>();
        requests_.load_chunk(first, rows);
        if (p_.prefix_is_int64 != kOneToken) {
            prefixes_.load_chunk(first, rows);
        }
        seqs_.load_chunk(first, rows);
        last_locs_.load_chunk(first, rows);
        order<HardEvent::MTE2_S>();
    }

    __aicore__ inline ExtendRow read(uint32_t i) const {
        const int64_t seq = seqs_.get(i);
        return ExtendRow{requests_.get(i), p_.prefix_is_int64 == kOneToken ? seq - 1 : prefixes_.get(i), seq,
                         last_locs_.get(i)};
    }

    // A bad row counts as padding; one block tells.
    __aicore__ inline void pass(const ExtendRow& row, int64_t index, bool own) {
        if (is_extend_padding(row)) {
            return;
        }
        ExtendCounts counts{};
        int32_t fault = extend_row_fault(row, p_);
        if (fault == kExtendValid) {
            counts = extend_counts(row, p_);
            fault = extend_room_fault(total_, counts, p_);
        }
        if (fault != kExtendValid) {
            if (own) {
                errors_.report(fault, index,
                               fault == kExtendUnknownRequest ? row.request
                               : fault == kExtendLastLoc      ? row.last_loc
                                                              : row.seq);
            }
            return;
        }
        cut_tokens(row, index, counts);
        cut_groups(row, index, counts);
        add_counts(total_, counts);
    }

    // ---- tokens ----

    __aicore__ inline void cut_tokens(const ExtendRow& row, int64_t index, const ExtendCounts& counts) {
        const int64_t before = total_.tokens;
        const int64_t end = row.prefix + (min_of(tokens_.end, before + counts.tokens) - before);
        const int64_t first_swa = swa_begin(row, p_);
        for (int64_t token = row.prefix + (max_of(tokens_.begin, before) - before); token < end;) {
            const int64_t page_end = min_of(next_page_start(token, p_.page_shift), end);
            const int64_t units = min_of<int64_t>(page_end - token, kExtendTileUnits);
            const int64_t full_listed = is_taken(token, row.prefix, p_.page_shift)
                                            ? list_entry(token, row.prefix, total_.full_pages, p_.page_shift)
                                            : kStarted;
            const int64_t swa_listed = token < first_swa ? kNone
                                       : is_taken(token, first_swa, p_.page_shift)
                                           ? list_entry(token, first_swa, total_.swa_pages, p_.page_shift)
                                           : kStarted;
            add_tokens(TokenPart{index, token, full_listed, swa_listed, row.last_loc, token - row.prefix + 1},
                       before + (token - row.prefix),
                       total_.c4 + (first_group_from(token) - first_group_from(row.prefix)),
                       static_cast<uint32_t>(units));
            token += units;
        }
    }

    __aicore__ inline void add_tokens(const TokenPart& part, int64_t entry, int64_t group_entry, uint32_t units) {
        if (num_tokens_ == kExtendTileParts || used_tokens_ + units > kExtendTileUnits) {
            flush_tokens();
        }
        const int64_t groups = first_group_from(part.token + units) - first_group_from(part.token);
        token_parts_[num_tokens_] = part;
        token_runs_[num_tokens_] = Run{entry, units, used_tokens_};
        c4_runs_[num_tokens_] = Run{group_entry, static_cast<uint32_t>(groups), used_c4_};
        ++num_tokens_;
        used_tokens_ += round_up<uint32_t>(units, kLaneWords);
        used_c4_ += round_up<uint32_t>(static_cast<uint32_t>(groups), kLaneWords);
    }

    __aicore__ inline void flush_tokens() {
        if (num_tokens_ == 0) {
            return;
        }
        fetch_tokens();
        for (uint32_t i = 0; i < num_tokens_; ++i) {
            first_full_[i] = make_slots(i);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Cast(entries_, swa_slots_, AscendC::RoundMode::CAST_NONE, used_tokens_);
        order<HardEvent::V_MTE3>();
        store_runs(full_, full_slots_, token_runs_, num_tokens_);
        store_runs(swa_, entries_, token_runs_, num_tokens_);
        store_runs(c4_, group_slots_, c4_runs_, num_tokens_);
        for (uint32_t i = 0; i < num_tokens_; ++i) {
            if (first_full_[i] > 0) {
                store(mapping_[static_cast<uint64_t>(first_full_[i])], entries_[token_runs_[i].area],
                      token_runs_[i].units);
            }
        }
        num_tokens_ = 0;
        used_tokens_ = 0;
        used_c4_ = 0;
    }

    // MTE3 has written the last batch, for which it waited for V and S. What S and V do next comes after S has waited
    // for the fetching, and so for MTE3.
    __aicore__ inline void fetch_tokens() {
        order<HardEvent::MTE3_MTE2>();
        order<HardEvent::S_MTE2>();
        full_from_ = kNone;
        swa_from_ = kNone;
        int64_t full_end = 0;
        int64_t swa_end = 0;
        for (uint32_t i = 0; i < num_tokens_; ++i) {
            const TokenPart& part = token_parts_[i];
            widen(part.full_listed, full_from_, full_end);
            widen(part.swa_listed, swa_from_, swa_end);
            if (part.swa_listed == kStarted) {
                load(lanes_[i * kLaneWords].ReinterpretCast<int64_t>(), mapping_[static_cast<uint64_t>(part.last_loc)],
                     1);
            }
        }
        load_pages(pages_, full_pages_, full_from_, full_end);
        load_pages(pages_[kExtendTileParts], swa_pages_, swa_from_, swa_end);
        order<HardEvent::MTE2_S>();
    }

    // Pages of the parts of a batch lie next to each other: a page that rows take is part of some row.
    __aicore__ inline void widen(int64_t listed, int64_t& from, int64_t& end) {
        if (listed >= 0) {
            from = from < 0 ? listed : from;
            end = listed + 1;
        }
    }

    __aicore__ inline void load_pages(const LocalTensor<int64_t>& to, const GlobalTensor<int64_t>& list, int64_t from,
                                      int64_t end) {
        if (from >= 0) {
            load(to, list[static_cast<uint64_t>(from)], static_cast<uint32_t>(end - from));
        }
    }

    // Returns the part's first full slot, or 0.
    __aicore__ inline int64_t make_slots(uint32_t i) {
        const TokenPart& part = token_parts_[i];
        const Run& run = token_runs_[i];
        const int64_t full = first_full_slot(part);
        const int64_t swa = full == 0 ? 0 : first_swa_slot(part, i);
        fill(full_slots_[run.area], full, run.units);
        fill(swa_slots_[run.area], swa, run.units);
        if (c4_runs_[i].units > 0) {
            fill(group_slots_[c4_runs_[i].area], full == 0 ? 0 : c4_slot_of(full, tokens_to_group_end(part.token)),
                 c4_runs_[i].units);
        }
        return full;
    }

    __aicore__ inline int64_t first_full_slot(const TokenPart& part) {
        if (part.full_listed < 0) {
            return part.full_listed == kStarted ? part.last_loc + part.after_last : 0;
        }
        const int64_t page = pages_.GetValue(static_cast<uint32_t>(part.full_listed - full_from_));
        if (!is_full_page(page, p_)) {
            errors_.report(kExtendPage, part.row, page);
            return 0;
        }
        return slot_of(page, part.token, p_.page_shift);
    }

    __aicore__ inline int64_t first_swa_slot(const TokenPart& part, uint32_t i) {
        if (part.swa_listed == kNone) {
            return 0;
        }
        int64_t page = 0;
        if (part.swa_listed == kStarted) {
            page = page_of(lanes_[i * kLaneWords].ReinterpretCast<int64_t>().GetValue(0), p_.page_shift);
        } else {
            page = pages_.GetValue(kExtendTileParts + static_cast<uint32_t>(part.swa_listed - swa_from_));
        }
        if (!is_swa_page(page, p_)) {
            errors_.report(kExtendPage, part.row, page);
            return 0;
        }
        return slot_of(page, part.token, p_.page_shift);
    }

    // first, first + 1, ..; zeros where there is no first slot.
    __aicore__ inline void fill(const LocalTensor<int32_t>& to, int64_t first, uint32_t units) {
        if (first > 0) {
            AscendC::Adds(to, iota_, static_cast<int32_t>(first), static_cast<int32_t>(units));
        } else {
            AscendC::Duplicate(to, int32_t{0}, static_cast<int32_t>(units));
        }
    }

    // Parts that lie next to each other in UB too are one copy.
    template <typename T>
    __aicore__ inline void store_runs(const GlobalTensor<T>& to, const LocalTensor<T>& from, const Run* runs,
                                      uint32_t count) {
        for (uint32_t i = 0; i < count;) {
            uint32_t units = runs[i].units;
            uint32_t next = i + 1;
            while (next < count && runs[next].area == runs[i].area + units) {
                units += runs[next++].units;
            }
            if (units > 0) {
                store(to[static_cast<uint64_t>(runs[i].entry)], from[runs[i].area], units);
            }
            i = next;
        }
    }

    // ---- groups of 128 ----

    __aicore__ inline void cut_groups(const ExtendRow& row, int64_t index, const ExtendCounts& counts) {
        const int64_t before = total_.c128;
        const int64_t first = groups_in(row.prefix, kRatioC128);
        const int64_t end = first + (min_of(groups_.end, before + counts.c128) - before);
        for (int64_t group = first + (max_of(groups_.begin, before) - before); group < end;) {
            const int64_t page_end = min_of(next_page_start(group, p_.c128_page_shift), end);
            const int64_t units = min_of<int64_t>(page_end - group, kExtendTileUnits);
            const int64_t listed = is_taken(group, first, p_.c128_page_shift)
                                       ? list_entry(group, first, total_.c128_pages, p_.c128_page_shift)
                                       : kStarted;
            add_groups(GroupPart{index, group, listed, c128_entry_elems(row.request, group, p_)},
                       before + (group - first), static_cast<uint32_t>(units));
            group += units;
        }
    }

    __aicore__ inline void add_groups(const GroupPart& part, int64_t entry, uint32_t units) {
        if (num_groups_ == kExtendTileParts || used_groups_ + units > kExtendTileUnits) {
            flush_groups();
        }
        group_parts_[num_groups_] = part;
        group_runs_[num_groups_] = Run{entry, units, used_groups_};
        ++num_groups_;
        used_groups_ += round_up<uint32_t>(units, kLaneWords);
    }

    // Uses the buffers of the tokens, whose parts only name what is to be done.
    __aicore__ inline void flush_groups() {
        if (num_groups_ == 0) {
            return;
        }
        fetch_groups();
        for (uint32_t i = 0; i < num_groups_; ++i) {
            make_groups(i);
        }
        order<HardEvent::V_MTE3>();
        order<HardEvent::S_MTE3>();
        store_runs(c128_, full_slots_, group_runs_, num_groups_);
        for (uint32_t i = 0; i < num_groups_; ++i) {
            store_page(i);
        }
        num_groups_ = 0;
        used_groups_ = 0;
    }

    __aicore__ inline void fetch_groups() {
        order<HardEvent::MTE3_MTE2>();
        order<HardEvent::S_MTE2>();
        c128_from_ = kNone;
        int64_t end = 0;
        for (uint32_t i = 0; i < num_groups_; ++i) {
            const GroupPart& part = group_parts_[i];
            widen(part.listed, c128_from_, end);
            // The page that goes on, or the one that is replaced.
            if (part.listed == kStarted || writes_page(part)) {
                load(lanes_[i * kLaneWords], table_[static_cast<uint64_t>(part.table_elems)], 1);
            }
        }
        load_pages(pages_, c128_pages_, c128_from_, end);
        order<HardEvent::MTE2_S>();
    }

    // The part with a page's first group puts it into the table.
    __aicore__ inline bool writes_page(const GroupPart& part) const {
        return part.listed >= 0 && !starts_inside_page(part.group, p_.c128_page_shift);
    }

    __aicore__ inline void make_groups(uint32_t i) {
        const GroupPart& part = group_parts_[i];
        int64_t page = part.listed == kStarted ? lanes_.GetValue(i * kLaneWords)
                                               : pages_.GetValue(static_cast<uint32_t>(part.listed - c128_from_));
        if (!is_c128_page(page, p_)) {
            errors_.report(kExtendPage, part.row, page);
            page = 0;
        }
        new_pages_.SetValue(i * kLaneWords, static_cast<int32_t>(page));
        fill(full_slots_[group_runs_[i].area], page == 0 ? 0 : slot_of(page, part.group, p_.c128_page_shift),
             group_runs_[i].units);
    }

    __aicore__ inline void store_page(uint32_t i) {
        const GroupPart& part = group_parts_[i];
        if (!writes_page(part)) {
            return;
        }
        store(replaced_[static_cast<uint64_t>(part.listed)], lanes_[i * kLaneWords], 1);
        const int64_t page = new_pages_.GetValue(i * kLaneWords);
        if (page > 0) {
            store(table_[static_cast<uint64_t>(part.table_elems)], new_pages_[i * kLaneWords], 1);
            store(owners_[static_cast<uint64_t>(page)], one_, 1);
        }
    }

    // Entries behind the rows, of which there are some if a row was bad: zeros.
    __aicore__ inline void fill_the_rest() {
        const bool complete = total_.tokens == p_.num_tokens && total_.c4 == p_.num_c4 && total_.c128 == p_.num_c128 &&
                              total_.c128_pages == p_.num_replaced;
        if (complete || AscendC::GetBlockIdx() != 0) {
            return;
        }
        order<HardEvent::MTE3_V>();
        AscendC::Duplicate(full_slots_, int32_t{0}, static_cast<int32_t>(kExtendTileUnits));
        AscendC::Duplicate(entries_.ReinterpretCast<int32_t>(), int32_t{0}, 2 * static_cast<int32_t>(kExtendTileUnits));
        order<HardEvent::V_MTE3>();
        clear(full_, full_slots_, total_.tokens, p_.num_tokens);
        clear(swa_, entries_, total_.tokens, p_.num_tokens);
        clear(c4_, full_slots_, total_.c4, p_.num_c4);
        clear(c128_, full_slots_, total_.c128, p_.num_c128);
        clear(replaced_, full_slots_, total_.c128_pages, p_.num_replaced);
    }

    template <typename T>
    __aicore__ inline void clear(const GlobalTensor<T>& to, const LocalTensor<T>& zeros, int64_t begin, int64_t end) {
        for (int64_t entry = begin; entry < end; entry += kExtendTileUnits) {
            store(to[static_cast<uint64_t>(entry)], zeros,
                  static_cast<uint32_t>(min_of<int64_t>(kExtendTileUnits, end - entry)));
        }
    }

    const ExtendFromListsParams& p_;
    ErrorLane errors_;
    GlobalTensor<int64_t> full_pages_, swa_pages_, c128_pages_, mapping_, swa_;
    GlobalTensor<int32_t> table_, owners_, full_, c4_, c128_, replaced_;
    TBuf<TPosition::VECCALC> input_buffer_, iota_buffer_, slot_buffer_, group_buffer_, wide_buffer_, page_buffer_,
        lane_buffer_, one_buffer_;
    LocalTensor<int32_t> iota_, full_slots_, swa_slots_, group_slots_, lanes_, new_pages_, one_;
    LocalTensor<int64_t> entries_, pages_;
    RowValues requests_, prefixes_, seqs_, last_locs_;
    BlockShare tokens_, groups_;  // of the outputs
    ExtendCounts total_{};        // of the rows so far
    TokenPart token_parts_[kExtendTileParts];
    GroupPart group_parts_[kExtendTileParts];
    Run token_runs_[kExtendTileParts], c4_runs_[kExtendTileParts], group_runs_[kExtendTileParts];
    int64_t first_full_[kExtendTileParts];
    int64_t full_from_, swa_from_, c128_from_;  // first page of the batch in a list
    uint32_t num_tokens_ = 0;
    uint32_t used_tokens_ = 0;
    uint32_t used_c4_ = 0;
    uint32_t num_groups_ = 0;
    uint32_t used_groups_ = 0;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void extend_from_lists(GM_ADDR requests, GM_ADDR prefixes, GM_ADDR seqs,
                                                        GM_ADDR last_locs, GM_ADDR full_pages, GM_ADDR swa_pages,
                                                        GM_ADDR c128_pages, GM_ADDR mapping, GM_ADDR table,
                                                        GM_ADDR owners, GM_ADDR full, GM_ADDR swa, GM_ADDR c4,
                                                        GM_ADDR c128, GM_ADDR replaced, GM_ADDR error_lanes,
                                                        ExtendFromListsParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(16 * sizeof(GM_ADDR) + sizeof(ExtendFromListsParams), 2);
    AscendC::TPipe pipe;
    const dsv4::kernel::ExtendRowInputs inputs{requests, prefixes, seqs, last_locs};
    const dsv4::kernel::ExtendMemory memory{full_pages, swa_pages, c128_pages, mapping, table,   owners,
                                            full,       swa,       c4,         c128,    replaced};
    dsv4::kernel::ExtendFromLists op(&pipe, inputs, memory, error_lanes, p);
    op.run();
}
