#include <torch/library.h>

namespace dsv4 {

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "step_sizes(Tensor seq_lens, Tensor? operand, int form, int width)"
        " -> (SymInt num_tokens, SymInt c4_groups, SymInt c128_groups, SymInt max_seq_len, SymInt max_new_tokens,"
        " Tensor final_lens)");
}

}  // namespace dsv4
