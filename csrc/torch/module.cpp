// The Python extension module. Loading it registers the ops under torch.ops.dsv4_npu_ops; it exports build facts only.
#include <pybind11/pybind11.h>
#include <torch/version.h>

#include "torch/inference_only.h"

PYBIND11_MODULE(_C, m) {
    m.doc() = "Registers torch.ops.dsv4_npu_ops; the attributes are facts about this build.";
    // Here and not in a static initialiser: those of all ops have run by now.
    dsv4::register_inference_only();
    m.attr("version") = DSV4_VERSION;
    m.attr("torch_version") = TORCH_VERSION;
    m.attr("compiler") = DSV4_COMPILER;
}
