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

// What an argument means for autograd, whether it stands alone or in a list.
void see_tensor(const c10::OperatorHandle& op, const c10::Argument& argument, const at::Tensor& tensor,
                bool grad_mode) {
    TORCH_CHECK(
        !grad_mode || !tensor.requires_grad(), bare_name(op.operator_name()), ": ", argument.name(),
        " requires grad, expected inference (torch.inference_mode() or torch.no_grad()): the op has no gradient");
    const c10::AliasInfo* alias = argument.alias_info();
    if (alias != nullptr && alias->isWrite() && tensor.defined() && !tensor.is_inference()) {
        // A backward that has saved this tensor must notice.
        tensor.unsafeGetTensorImpl()->bump_version();
    }
}

void run_without_gradients(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const auto& arguments = op.schema().arguments();
    const auto values = torch::jit::last(*stack, arguments.size());
    const bool grad_mode = c10::GradMode::is_enabled();
    for (size_t i = 0; i < arguments.size(); ++i) {
        if (values[i].isTensor()) {
            see_tensor(op, arguments[i], values[i].toTensor(), grad_mode);
        } else if (values[i].isList()) {
            for (const c10::IValue& value : values[i].toListRef()) {
                if (value.isTensor()) {
                    see_tensor(op, arguments[i], value.toTensor(), grad_mode);
                }
            }
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
            library->impl(c10::toString(name).c_str(),
                          torch::CppFunction::makeFromBoxedFunction<&run_without_gradients>());
        }
    }
}

}  // namespace dsv4
