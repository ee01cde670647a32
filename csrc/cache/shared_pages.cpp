#include "cache/shared_pages.h"

#include <algorithm>

namespace dsv4 {

SharedPages::Iterator SharedPages::from(int64_t page) const {
    return std::lower_bound(pages_.begin(), pages_.end(), page,
                            [](const SharedPage& candidate, int64_t value) { return candidate.page < value; });
}

void SharedPages::add(SharedPage page) { pages_.insert(from(page.page), page); }

void SharedPages::remove(int64_t first_page, int64_t end_page) { pages_.erase(from(first_page), from(end_page)); }

int32_t OwnerCounts::open() {
    if (unused_.empty()) {
        owners_.push_back(1);
        return static_cast<int32_t>(owners_.size() - 1);
    }
    const int32_t record = unused_.back();
    unused_.pop_back();
    owners_[record] = 1;
    return record;
}

int64_t OwnerCounts::remove_owner(int32_t record) {
    removed_.push_back(record);
    if (--owners_[record] == 0) {
        unused_.push_back(record);
    }
    return owners_[record];
}

void OwnerCounts::undo() {
    for (auto record = removed_.rbegin(); record != removed_.rend(); ++record) {
        if (owners_[*record]++ == 0) {
            unused_.pop_back();
        }
    }
    removed_.clear();
}

}  // namespace dsv4
