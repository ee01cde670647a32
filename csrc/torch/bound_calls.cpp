#include "torch/bound_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <pthread.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dsv4 {
namespace {

constexpr char kOps[] = "dsv4_npu_ops";
constexpr char kCalls[] = "dsv4_npu_calls";
constexpr size_t kMostChanging = 11;

using OptionalTensor = std::optional<at::Tensor>;

struct BoundCall {
    c10::OperatorHandle op;
    torch::jit::Stack arguments;
    std::vector<int64_t> changing;  // positions of the tensors that each call brings
};

class BoundCalls;

// Lives as long as the process: tensors of a device may not end after torch has.
BoundCalls& bound_calls();

class BoundCalls {
  public:
    // A fork takes the calls with it, never in the middle of a change.
    BoundCalls() {
        pthread_atfork([] { bound_calls().mutex_.lock(); }, [] { bound_calls().mutex_.unlock(); },
                       [] { bound_calls().mutex_.unlock(); });
    }

    int64_t add(BoundCall call) {
        const std::scoped_lock lock(mutex_);
        calls_.emplace(++last_, std::make_shared<const BoundCall>(std::move(call)));
        return last_;
    }

    std::shared_ptr<const BoundCall> at(int64_t number) {
        const std::scoped_lock lock(mutex_);
        const auto found = calls_.find(number);
        TORCH_CHECK_VALUE(found != calls_.end(), "bound: call ", number, " is not bound");
        return found->second;
    }

    void remove(int64_t number) {
        std::shared_ptr<const BoundCall> last_owner;  // its tensors end when the lock is open again
        const std::scoped_lock lock(mutex_);
        if (const auto found = calls_.find(number); found != calls_.end()) {
            last_owner = std::move(found->second);
            calls_.erase(found);
        }
    }

  private:
    std::mutex mutex_;
    int64_t last_ = 0;
    std::unordered_map<int64_t, std::shared_ptr<const BoundCall>> calls_;
};

BoundCalls& bound_calls() {
    static auto* const calls = new BoundCalls;
    return *calls;
}

// Takes the arguments of the op that the overload names, and leaves the call's number.
void bind(const c10::OperatorHandle& binder, torch::jit::Stack* stack) {
    const size_t count = binder.schema().arguments().size();
    const auto given = torch::jit::last(*stack, count);
    std::vector<int64_t> changing = given[0].toIntVector();
    const std::string& bound = binder.schema().overload_name();
    const size_t name_end = bound.find("__");
    const std::string op_name = std::string(kOps) + "::" + bound.substr(0, name_end);
    const std::string overload = name_end == std::string::npos ? "" : bound.substr(name_end + 2);
    torch::jit::Stack arguments(given.begin() + 1, given.end());
    TORCH_CHECK_VALUE(changing.size() <= kMostChanging, "bind: ", changing.size(), " tensors change, expected at most ",
                      kMostChanging);
    for (const int64_t position : changing) {
        TORCH_CHECK_VALUE(position >= 0 && static_cast<size_t>(position) < arguments.size(), "bind: position ",
                          position, " changes, expected one of ", arguments.size());
        arguments[position] = {};
    }
    const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(op_name.c_str(), overload.c_str());
    torch::jit::drop(*stack, count);
    stack->emplace_back(bound_calls().add({op, std::move(arguments), std::move(changing)}));
}

std::vector<at::Tensor> call_bound(int64_t number, const OptionalTensor& a, const OptionalTensor& b,
                                   const OptionalTensor& c, const OptionalTensor& d, const OptionalTensor& e,
                                   const OptionalTensor& f, const OptionalTensor& g, const OptionalTensor& h,
                                   const OptionalTensor& i, const OptionalTensor& j, const OptionalTensor& k) {
    const std::array<const OptionalTensor*, kMostChanging> given = {&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k};
    const std::shared_ptr<const BoundCall> call = bound_calls().at(number);
    torch::jit::Stack stack = call->arguments;
    for (size_t n = 0; n < given.size(); ++n) {
        if (n < call->changing.size()) {
            stack[call->changing[n]] = *given[n];
        } else {
            TORCH_CHECK_VALUE(!given[n]->has_value(), "bound: tensor ", n, " is given, expected ",
                              call->changing.size(), " tensors");
        }
    }
    call->op.callBoxed(&stack);
    return stack.empty() ? std::vector<at::Tensor>() : std::move(stack.front()).toTensorVector();
}

void unbind(int64_t number) { bound_calls().remove(number); }

// The schema by which an op is bound: `changing`, then its own arguments, of which none is written.
c10::FunctionSchema binding_schema(const c10::FunctionSchema& op) {
    std::vector<c10::Argument> arguments = {c10::Argument("changing", c10::ListType::ofInts())};
    for (const c10::Argument& argument : op.arguments()) {
        arguments.emplace_back(argument.name(), argument.type(), argument.real_type(), argument.N(),
                               argument.default_value(), argument.kwarg_only());
    }
    const std::string name = op.name().substr(sizeof(kOps) + 1);
    const std::string overload = op.overload_name().empty() ? name : name + "__" + op.overload_name();
    return {std::string(kCalls) + "::bind", overload, std::move(arguments), {c10::Argument("", c10::IntType::get())}};
}

}  // namespace

void register_bound_calls() {
    bound_calls();  // before any thread can be in the middle of making them while another forks
    // Lives as long as the ops do.
    static auto* const library = new torch::Library(torch::Library::DEF, kCalls, std::nullopt, __FILE__, __LINE__);
    std::vector<std::string> names = {"bound", "unbind"};
    for (const auto& [name, overload] : {std::pair{"step", ""}, std::pair{"step", "new"},
                                         std::pair{"draft_steps", "apart"}, std::pair{"advance_step", "samples"}}) {
        const std::string op = std::string(kOps) + "::" + name;
        c10::FunctionSchema schema =
            binding_schema(c10::Dispatcher::singleton().findSchemaOrThrow(op.c_str(), overload).schema());
        const std::string full = "bind." + schema.overload_name();
        library->def(std::move(schema));
        names.push_back(full);
        // Whatever the arguments are: of a device, of a trace, or wrapped.
        library->impl(full.c_str(), torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd,
                                                    torch::CppFunction::makeFromBoxedFunction<&bind>()));
    }
    library->def(
        "bound(int call, Tensor? a=None, Tensor? b=None, Tensor? c=None, Tensor? d=None, Tensor? e=None,"
        " Tensor? f=None, Tensor? g=None, Tensor? h=None, Tensor? i=None, Tensor? j=None, Tensor? k=None) -> Tensor[]",
        &call_bound);
    library->def("unbind(int call) -> ()", &unbind);
    // Modes see the ops that are called, not how.
    for (const auto key : {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}) {
        for (const std::string& name : names) {
            library->impl(name.c_str(), torch::dispatch(key, torch::CppFunction::makeFallthrough()));
        }
    }
}

}  // namespace dsv4
