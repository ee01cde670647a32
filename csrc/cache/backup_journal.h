// What has been allocated since each open backup, so that restore can take back exactly that. Backups nest: one log
// serves all of them, and an inner backup that is discarded leaves its entries to the outer one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/unit_runs.h"

namespace dsv4 {

struct JournalEntry {
    enum class Kind { kStarted, kGrew, kAllocated, kShared };

    Kind kind;
    int64_t request;
    int64_t incarnation;  // tells a request from a later one in the same row
    int64_t old_length;   // kGrew: allocated length before, in raw tokens
    int32_t pool;         // kAllocated, kShared
    UnitRange units;      // kAllocated, kShared: got by taking pages or by sharing them; kGrew: unfilled_swa before
};

// A backup that was closed, and what has been allocated while it was the innermost one, oldest first.
struct ClosedBackup {
    int64_t handle;
    std::vector<JournalEntry> entries;
};

class BackupJournal {
  public:
    bool recording() const { return !backups_.empty(); }

    void record(const JournalEntry& entry) { entries_.push_back(entry); }

    // Returns the handle of a new innermost backup. Handles are never used twice.
    int64_t open();

    // Raises ValueError unless `handle` is the innermost open backup.
    void check_innermost(const char* op, int64_t handle) const;

    // Closes the innermost backup. What the ones around it have logged is not touched.
    ClosedBackup take_innermost();

    // Takes take_innermost() back, with nothing opened or recorded in between.
    void reopen(const ClosedBackup& closed);

    // Closes the innermost backup; its entries now belong to the one around it.
    void discard_innermost();

  private:
    struct Backup {
        int64_t handle;
        size_t first_entry;
    };

    std::vector<Backup> backups_;
    std::vector<JournalEntry> entries_;
    int64_t last_handle_ = 0;
};

}  // namespace dsv4
