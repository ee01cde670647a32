// Pages that several requests own. The ledger knows no page ids: a page that was shared once has a record, and each of
// its owners keeps the record's number beside the page's index.
#pragma once

#include <cstdint>
#include <vector>

namespace dsv4 {

struct SharedPage {
    int64_t page;  // index in the request
    int32_t record;
};

// The pages of one request in one pool that have a record, ascending.
class SharedPages {
  public:
    using Iterator = std::vector<SharedPage>::const_iterator;

    // The first with at least this index.
    Iterator from(int64_t page) const;
    Iterator end() const { return pages_.end(); }

    void add(SharedPage page);

    // Forgets [first_page, end_page).
    void remove(int64_t first_page, int64_t end_page);
    void clear() { pages_.clear(); }

  private:
    std::vector<SharedPage> pages_;
};

// How many requests own the page of each record.
class OwnerCounts {
  public:
    // A record with one owner.
    int32_t open();
    void add_owner(int32_t record) { ++owners_[record]; }
    int64_t owners(int32_t record) const { return owners_[record]; }

    // Returns how many are left; without owners the record ends.
    int64_t remove_owner(int32_t record);

    // undo() takes back the removals since the last call of begin().
    void begin() { removed_.clear(); }
    void undo();

  private:
    std::vector<int64_t> owners_;
    std::vector<int32_t> unused_;   // records without owners
    std::vector<int32_t> removed_;  // records that lost an owner, oldest first
};

}  // namespace dsv4
