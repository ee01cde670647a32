// What the host knows of a pool's ring of free pages: where the first one lies and how many there are.
#pragma once

#include "common/page_segments.h"

namespace dsv4 {

class FreeQueue {
  public:
    FreeQueue() = default;
    explicit FreeQueue(int64_t capacity_pages) : capacity_(capacity_pages), available_(capacity_pages) {}

    int64_t capacity() const { return capacity_; }
    int64_t available() const { return available_; }

    // Each returns the ring position of the first of `pages` pages; the others follow it.
    int64_t take(int64_t pages) {
        const int64_t position = head_;
        head_ = ring_entry(head_, pages, capacity_);
        available_ -= pages;
        return position;
    }

    int64_t push_back(int64_t pages) {
        const int64_t position = ring_entry(head_, available_, capacity_);
        available_ += pages;
        return position;
    }

    // The entries before the head belong to pages that are owned, so that they are free to write.
    int64_t push_front(int64_t pages) {
        head_ = head_ >= pages ? head_ - pages : head_ - pages + capacity_;
        available_ += pages;
        return head_;
    }

  private:
    int64_t capacity_ = 0;
    int64_t available_ = 0;
    int64_t head_ = 0;
};

}  // namespace dsv4
