#include "ops/payload_spans/payload_spans_index.h"

#include <torch/library.h>

#include <vector>

#include "torch/check.h"

namespace dsv4 {
namespace {

std::vector<int64_t> payload_spans(int64_t seq_len, int64_t prefix_len, int64_t sliding_window) {
    constexpr char kOp[] = "payload_spans";
    check::at_least(kOp, "prefix_len", prefix_len, 0);
    check::at_least(kOp, "sliding_window", sliding_window, 1);
    TORCH_CHECK_VALUE(seq_len >= prefix_len, kOp, ": seq_len is ", seq_len, ", expected at least prefix_len, ",
                      prefix_len);
    std::vector<int64_t> spans;
    for (int32_t pool = kSwa; pool < kNumPools; ++pool) {
        const UnitSpan span = payload_span(pool, seq_len, prefix_len, sliding_window);
        spans.insert(spans.end(), {span.first, span.end});
    }
    return spans;
}

}  // namespace

// It takes no tensor, so that no backend's key would select it.
TORCH_LIBRARY_IMPL(dsv4_npu_ops, CompositeExplicitAutograd, m) { m.impl("payload_spans", &payload_spans); }

}  // namespace dsv4
