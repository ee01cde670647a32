#include "torch/inference_only.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <string>

namespace dsv4 {
namespace {

constexpr char kNamespace[] = "dsv4_npu_ops";

// The name of an op as other errors have it, without namespace and overload.
std::string bare_name(const c10::OperatorName& name) { return name.name.substr(sizeof(kNamespace) + 1); }

void run_without_gradients(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const auto& arguments = op.schema().arguments();
    const auto values = torch::jit::last(*stack, arguments.size());
    const bool grad_mode = c10::GradMode::is_enabled();
    for (size_t i = 0; i < arguments.size(); ++i) {
        if (!values[i].isTensor()) {
            continue;
        }
        const at::Tensor& tensor = values[i].toTensor();
        TORCH_CHECK(!grad_mode || !tensor.requires_grad(), bare_name(op.operator_name()), ": ", arguments[i].name(),
                    " requires grad, expected inference (torch.inference_mode() or torch.no_grad()): the op has no "
                    "gradient");
        const c10::AliasInfo* alias = arguments[i].alias_info();
        if (alias != nullptr && alias->isWrite() && tensor.defined() && !tensor.is_inference()) {
            // A backward that has saved this tensor must notice.
            tensor.unsafeGetTensorImpl()->bump_version();
        }
    }
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

}  // namespace

void register_inference_only() {
    // Lives as long as the ops do.
    static auto* library =
        new torch::Library(torch::Library::IMPL, kNamespace, c10::DispatchKey::Autograd, __FILE__, __LINE__);
    const std::string prefix = std::string(kNamespace) + "::";
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
        if (name.name.starts_with(prefix)) {
            library->impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_without_gradients>());
        }
    }
}

}  // namespace dsv4
