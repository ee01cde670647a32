// Two requests through a prefill and verifies of 4 tokens: the ledger decides, ops write the tables, a step says where
// everything stands. No Python is in this process.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iostream>

#include "dsv4_npu_ops/ledger.h"

namespace ops = dsv4_npu_ops;

namespace {

constexpr int64_t kRequests = 4, kContext = 1024, kPageSize = 128, kWindow = 128, kWidth = 4;
constexpr int64_t kTokensOfSlot[] = {1, 1, 4, 128, 1, 1};

at::Tensor int32(std::vector<int64_t> values) { return at::tensor(values, at::kLong).to(at::kInt); }

// Pools of one size each, with the package's own page tables.
class Cache {
  public:
    Cache() : ledger_(num_pages_, sizes_, columns(), kWindow, kRequests, kContext) {
        std::vector<at::Tensor> rings;
        for (int64_t pool = 0; pool < ops::kNumPools; ++pool) {
            tables_.push_back(at::zeros({kRequests, columns()[pool]}, at::kInt));
            pools_.pages(static_cast<ops::Pool>(pool), tables_.back(), kPageSize);
            rings.push_back(at::arange(1, num_pages_[pool] + 1, at::kInt));
        }
        free_pages_ = at::cat(rings);
    }

    // Slots of all pools for [prefix, seq) of each request.
    bool allocate(const ops::Extension& extension) {
        if (!extension.fits()) {
            std::cout << "pool " << extension.shortage[0] << " lacks pages: " << extension.shortage[1] << " needed, "
                      << extension.shortage[2] << " free\n";
            return false;
        }
        ops::reserve_extend(tables_, free_pages_, extension.work.segments, num_pages_, extension.num_slots, sizes_);
        ledger_.commit_extension();
        return true;
    }

    void free(const ops::IntList& requests) {
        const ops::WorkLists work = ledger_.free(requests);
        ops::release_pages(tables_, free_pages_, work.segments, num_pages_, sizes_, work.num_items);
    }

    ops::Ledger& ledger() { return ledger_; }
    const ops::Pools& pools() const { return pools_; }

  private:
    static ops::IntList columns() {
        ops::IntList counts;
        for (const int64_t tokens : kTokensOfSlot) {
            counts.push_back(std::max<int64_t>(1, (kContext / tokens + kPageSize - 1) / kPageSize));
        }
        return counts;
    }

    ops::IntList num_pages_ = ops::IntList(ops::kNumPools, 16);
    ops::IntList sizes_ = ops::IntList(ops::kNumPools, kPageSize);
    ops::Ledger ledger_;
    std::vector<at::Tensor> tables_;
    at::Tensor free_pages_;
    ops::Pools pools_;
};

// Groups that a verify completes, their slots, and the lengths behind it.
void verify(const Cache& cache, const at::Tensor& requests, const at::Tensor& lengths) {
    const int64_t rows = lengths.size(0), tokens = rows * kWidth;
    const at::Tensor positions = at::empty({tokens / 4 + rows}, at::kLong),
                     slots = at::empty({tokens / 4 + rows}, at::kInt);
    const at::Tensor window = at::empty({tokens}, at::kInt), kv_lens = at::empty({rows}, at::kInt);
    ops::StepOut out;
    out.want(ops::slots_of(ops::kSwa), window)
        .want(ops::slots_of(ops::kC4), slots)
        .want(ops::kPositionsC4, positions)
        .want(ops::kKvLens, kv_lens);
    ops::step(cache.pools().tables(), cache.pools().addressing(), requests, lengths, std::nullopt, std::nullopt,
              std::nullopt, ops::kVerify, kWidth, kWindow, kContext, out.out(), out.fields(), {0, 0, 0, 0, 0, 0},
              {-1, -1, -1, -1, 0, 0}, 1, false, std::nullopt, std::nullopt, std::nullopt, std::nullopt);
    for (const auto& [name, values] : {std::pair{"window slots", window},
                                       {"c4 positions", positions.to(at::kInt)},
                                       {"c4 slots", slots},
                                       {"lengths", kv_lens}}) {
        std::cout << name << ":";
        for (int64_t i = 0; i < values.numel(); ++i) std::cout << " " << values[i].item<int32_t>();
        std::cout << "\n";
    }
}

}  // namespace

int main(int argc, char** argv) {
    ops::load(argc > 1 ? argv[1] : DSV4_NPU_OPS_LIBRARY);
    std::cout << ops::check_all() << " ops\n";
    Cache cache;
    if (!cache.allocate(cache.ledger().alloc_extend({2, 0}, {0, 0}, {6, 126}))) return 1;
    const at::Tensor requests = int32({2, 0});
    if (!cache.allocate(cache.ledger().reserve_extend({2, 0}, {6, 126}, {10, 130}))) return 1;
    verify(cache, requests, int32({6, 126}));
    cache.allocate(cache.ledger().reserve_extend({2}, {10}, {1024}));
    cache.allocate(cache.ledger().reserve_extend({0}, {130}, {1024}));
    cache.allocate(cache.ledger().alloc_extend({1}, {0}, {1024}));
    std::cout << "full has " << cache.ledger().available_pages(ops::kFull) << " pages\n";
    cache.free({2, 0});
    std::cout << "full has " << cache.ledger().available_pages(ops::kFull) << " pages\n";
    try {
        ops::step(cache.pools().tables(), cache.pools().addressing(), std::nullopt, int32({-1}), std::nullopt,
                  std::nullopt, std::nullopt, ops::kVerify, kWidth, kWindow, kContext, {at::empty({1}, at::kInt)},
                  int64_t{1} << ops::kKvLens, {0, 0, 0, 0, 0, 0}, {-1, -1, -1, -1, 0, 0}, 1, false, std::nullopt,
                  std::nullopt, std::nullopt, std::nullopt);
    } catch (const c10::ValueError& error) {
        std::cout << error.what_without_backtrace() << "\n";
    }
    return 0;
}
