#include <torch/library.h>

namespace dsv4 {

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def("payload_spans(int seq_len, int prefix_len, int sliding_window) -> int[]");
}

}  // namespace dsv4
