// Host side of the paged allocation: what every request owns in every pool, and how many pages are free. It decides
// and counts; page ids live on the device only, where reserve_extend and release_pages carry out its segments.
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "cache/backup_journal.h"
#include "cache/extend_plan.h"

namespace dsv4 {

using IntList = std::vector<int64_t>;

// What a call takes back, and the entries of the full-to-swa mapping that lose their meaning by it.
struct Release {
    std::vector<ReleaseSegment> segments;
    std::vector<MapSegment> map_segments;
};

class KVLedger {
  public:
    // By pool, in table order: num_pages, usable pages, -1 for a pool that does not exist; page_sizes, slots of a page;
    // columns, entries in a row of the page table. maps_full_to_swa: calls also say what changes in the full-to-swa
    // mapping.
    KVLedger(const IntList& num_pages, const IntList& page_sizes, const IntList& columns, int64_t sliding_window,
             int64_t max_requests, int64_t max_context_len, bool maps_full_to_swa);

    struct Extension {
        std::vector<ReserveSegment> segments;
        std::vector<MapSegment> map_segments;
        std::array<int64_t, kNumPools> num_slots = {};  // entries of each pool's output
        int32_t lacking_pool = -1;                      // the first pool without enough pages; nothing was changed then
        int64_t needed_pages = 0;                       // of the lacking pool
    };

    // Lengths in raw tokens, one entry a row. Each raises ValueError before anything has changed. alloc_extend starts
    // requests and gives the state pools only the tail, and with a swa_tail the swa pool no more than that; the others
    // know running requests only.
    Extension alloc_extend(const IntList& requests, const IntList& prefix_lens, const IntList& seq_lens,
                           std::optional<int64_t> swa_tail);
    Extension reserve_extend(const IntList& requests, const IntList& prefix_lens, const IntList& seq_lens);
    Extension alloc_decode(const IntList& requests, const IntList& seq_lens);
    // Enters the last extension into the books. The caller first carries out its segments: until then nothing changed.
    void commit_extension();

    struct Sharing {
        std::vector<ShareSegment> segments;
        std::vector<MapSegment> map_segments;
        std::array<int64_t, kNumPools> num_copies = {};  // entries of each pool in the lists of pages
        int64_t total_copies = 0;
        IntList starts;                                  // raw tokens that each target has
        int32_t lacking_pool = -1;                       // as above
        int64_t needed_pages = 0;
    };

    // The longest start within prefix_len that a request sharing with `source` can step from.
    int64_t shareable_len(int64_t source, int64_t prefix_len) const;
    // Starts each target on the prefix of its source. Raises ValueError before anything has changed.
    Sharing share_prefix(const IntList& sources, const IntList& targets, const IntList& prefix_lens);
    // commit_extension() of the last share_prefix().
    void commit_sharing();

    // These change the books at once; undo_release() takes back the last of them when its segments could not be
    // carried out.
    Release evict(const IntList& requests, const IntList& committed_lens);
    Release free(const IntList& requests);

    int64_t backup_state() { return journal_.open(); }
    Release restore_state(int64_t backup);
    void undo_release();

    void discard_state(int64_t backup);

    int64_t available_pages(int64_t pool) const;
    int64_t allocated_len(int64_t request) const;
    // Indices of the pages that other requests own as well, ascending.
    IntList shared_pages(int64_t request, int64_t pool) const;

  private:
    Extension extend(const ExtendRules& rules, const IntList& requests, const IntList& prefix_lens,
                     const IntList& seq_lens);
    void check_requests(const char* op, const char* name, const IntList& requests);
    void check_same_size(const char* op, const char* name, const IntList& values, const char* like,
                         const IntList& requests) const;
    void check_live(const char* op, size_t index, int64_t request) const;
    void check_extend_row(const ExtendRules& rules, const ExtendRow& row) const;
    void begin_release();
    void remember_life(int64_t request);
    template <typename Visit>
    void leave_pages(int32_t pool, int64_t request, UnitRange units, Visit&& visit);
    void release_to_back(Release& release, int32_t pool, int64_t request, UnitRange range);
    void check_running(const char* op, const char* name, int64_t request) const;
    void check_pool(const char* op, int64_t pool) const;
    void check_share_row(size_t index, int64_t source, int64_t target, int64_t prefix_len) const;
    void start(int64_t request, int64_t length);
    int64_t largest_start(int32_t pool, int64_t source, int64_t length) const;
    PageRange whole_pages(int32_t pool, int64_t length) const;
    void plan_whole_pages(int32_t pool, const IntList& sources, const IntList& targets, Sharing& sharing) const;
    void plan_copies(int32_t pool, const IntList& sources, const IntList& targets, Sharing& sharing,
                     FreeQueue& queue) const;
    void share_pages(const ShareSegment& segment);
    bool still_runs(const JournalEntry& entry) const;
    int64_t count_restored_pages(const JournalEntry& entry) const;
    void append_release(Release& release, int32_t pool, int64_t request, UnitRange units, int64_t ring_position,
                        bool page_lives_on) const;
    int64_t release_to_front(Release& release, const JournalEntry& entry, int64_t ring_position);

    struct PendingExtension {
        std::vector<GrownUnits> grown;
        std::array<FreeQueue, kNumPools> queues;  // once the pages are taken
        ExtendRules rules;
        IntList requests;
        IntList prefix_lens;  // raw tokens
        IntList seq_lens;
    };

    struct PendingSharing {
        std::vector<ShareSegment> segments;
        std::array<FreeQueue, kNumPools> queues;  // once the pages are taken
        IntList sources;
        IntList targets;
        IntList starts;  // raw tokens
    };

    struct LostUnits {
        int64_t request;
        int32_t pool;
        UnitRange units;
    };

    struct LeftPage {
        int64_t request;
        int32_t pool;
        SharedPage page;
    };

    // What the last release took away. Nothing else is remembered: a release costs what it frees, not what a request
    // holds or an outer backup has logged.
    struct ReleaseUndo {
        std::array<FreeQueue, kNumPools> queues;             // before
        std::vector<std::pair<int64_t, RequestLife>> lives;  // request, life before
        std::vector<LostUnits> units;
        std::vector<LeftPage> pages;  // that were shared once
        std::optional<ClosedBackup> backup;
    };

    CacheGeometry geometry_;
    std::array<FreeQueue, kNumPools> queues_;
    std::vector<RequestState> states_;  // one a row of the request tables
    std::vector<int64_t> named_in_;     // number of the last call that named the row
    int64_t num_calls_ = 0;
    int64_t num_started_ = 0;
    OwnerCounts owners_;
    BackupJournal journal_;
    PendingExtension pending_;
    PendingSharing pending_sharing_;
    ReleaseUndo undo_;
};

}  // namespace dsv4
