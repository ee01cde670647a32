// The Python extension module. Loading it registers the ops under torch.ops.dsv4_npu_ops; it exports build facts only.
// It keeps to Python's stable ABI (CMakeLists.txt defines Py_LIMITED_API): one build serves every Python from 3.10 on.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <torch/version.h>

#include "torch/inference_only.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_C", "Registers torch.ops.dsv4_npu_ops; the attributes are facts about this build.", -1,
    nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C() {
    PyObject* const module = PyModule_Create(&definition);
    if (module == nullptr) return nullptr;
    if (PyModule_AddStringConstant(module, "version", DSV4_VERSION) < 0 ||
        PyModule_AddStringConstant(module, "torch_version", TORCH_VERSION) < 0 ||
        PyModule_AddStringConstant(module, "compiler", DSV4_COMPILER) < 0) {
        Py_DecRef(module);
        return nullptr;
    }
    // Here and not in a static initialiser: those of all ops have run by now.
    dsv4::register_inference_only();
    return module;
}
