// Calls of ops whose arguments are handed over once, but for a few tensors: converting a step's from Python takes as
// long as a small step. For this package's Python alone (python/dsv4_npu_ops/ops/bound_call.py).
#pragma once

namespace dsv4 {

// Registers torch.ops.dsv4_npu_calls: `bind` for each op that is called so, `bound` and `unbind`.
void register_bound_calls();

}  // namespace dsv4
