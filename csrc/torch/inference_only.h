// The ops have no gradients: autograd would take what they return or overwrite for constants.
#pragma once

namespace dsv4 {

// Registers for every op of this namespace, which must all be known by now, that an argument which requires grad is
// refused while grad mode is on, and that autograd learns which tensors the op writes.
void register_inference_only();

}  // namespace dsv4
