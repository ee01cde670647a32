// The Python extension module. Loading it registers the ops under torch.ops.dsv4_npu_ops; it exports build facts only.
// It keeps to Python's stable ABI (CMakeLists.txt defines Py_LIMITED_API): one build serves every Python from 3.10 on.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <torch/version.h>

#include <mutex>

#include "torch/bound_calls.h"
#include "torch/inference_only.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_C", "Registers torch.ops.dsv4_npu_ops; the attributes are facts about this build.", -1,
    nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

// For programs without Python, which load this library by its path (dsv4_npu_ops/include): no function of Python is
// called here, so that none needs to be there.
extern "C" const char* dsv4_npu_ops_version() { return DSV4_VERSION; }
extern "C" const char* dsv4_npu_ops_torch_version() { return TORCH_VERSION; }
extern "C" void dsv4_npu_ops_begin() {
    // Not a static initialiser: those of all ops have run by now.
    static std::once_flag once;
    std::call_once(once, [] {
        dsv4::register_inference_only();
        dsv4::register_bound_calls();
    });
}

PyMODINIT_FUNC PyInit__C() {
    PyObject* const module = PyModule_Create(&definition);
    if (module == nullptr) return nullptr;
    if (PyModule_AddStringConstant(module, "version", DSV4_VERSION) < 0 ||
        PyModule_AddStringConstant(module, "torch_version", TORCH_VERSION) < 0 ||
        PyModule_AddStringConstant(module, "compiler", DSV4_COMPILER) < 0) {
        Py_DecRef(module);
        return nullptr;
    }
    dsv4_npu_ops_begin();
    return module;
}
