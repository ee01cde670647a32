// A block's share of a segment list, read field by field, for the naive allocation kernels.
#pragma once

#include "common/page_segments.h"
#include "scalar_run.h"

namespace dsv4::naive {

template <typename Segment>
__aicore__ inline Segment read_segment(GM_ADDR segments, int64_t num_segments, int64_t index) {
    Segment segment;
    int32_t* fields = reinterpret_cast<int32_t*>(&segment);
    for (int64_t field = 0; field < kSegmentFields; ++field) {
        fields[field] = element<int32_t>(segments, num_segments * kSegmentFields, index * kSegmentFields + field);
    }
    return segment;
}

}  // namespace dsv4::naive
