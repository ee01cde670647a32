#include "cache/backup_journal.h"

#include <c10/util/Exception.h>

namespace dsv4 {

int64_t BackupJournal::open() {
    backups_.push_back(Backup{++last_handle_, entries_.size()});
    return last_handle_;
}

void BackupJournal::check_innermost(const char* op, int64_t handle) const {
    TORCH_CHECK_VALUE(!backups_.empty(), op, ": backup is ", handle, ", expected an open backup, but there is none");
    TORCH_CHECK_VALUE(backups_.back().handle == handle, op, ": backup is ", handle, ", expected ",
                      backups_.back().handle, ", the newest one that is open");
}

ClosedBackup BackupJournal::take_innermost() {
    const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(backups_.back().first_entry);
    ClosedBackup closed{backups_.back().handle, {first, entries_.end()}};
    entries_.erase(first, entries_.end());
    backups_.pop_back();
    return closed;
}

void BackupJournal::reopen(const ClosedBackup& closed) {
    backups_.push_back(Backup{closed.handle, entries_.size()});
    entries_.insert(entries_.end(), closed.entries.begin(), closed.entries.end());
}

void BackupJournal::discard_innermost() {
    backups_.pop_back();
    if (backups_.empty()) {
        entries_.clear();
    }
}

}  // namespace dsv4
