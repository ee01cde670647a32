#include "fiber.h"

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include <new>
#include <utility>

namespace ascend_sim {

namespace {

constexpr size_t kStackBytes = size_t{1} << 20;
constexpr size_t kGuardBytes = 4096;

Fiber* g_running = nullptr;

// AddressSanitizer must know which stack runs, or an exception that unwinds a body looks like an overflow.
#if defined(__SANITIZE_ADDRESS__)
const void* g_callers_stack = nullptr;
size_t g_callers_size = 0;

void Leave(void** fake_stack, const void* stack, size_t size) { __sanitizer_start_switch_fiber(fake_stack, stack, size); }

void Arrive(void* fake_stack, bool in_body) {
    __sanitizer_finish_switch_fiber(fake_stack, in_body ? &g_callers_stack : nullptr,
                                    in_body ? &g_callers_size : nullptr);
}
#else
constexpr const void* g_callers_stack = nullptr;
constexpr size_t g_callers_size = 0;

void Leave(void**, const void*, size_t) {}

void Arrive(void*, bool) {}
#endif

}  // namespace

Fiber::Fiber() {
    stack_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack_ == MAP_FAILED) {
        throw std::bad_alloc();
    }
    mprotect(stack_, kGuardBytes, PROT_NONE);
}

Fiber::~Fiber() { munmap(stack_, kStackBytes); }

void Fiber::Enter() {
    Arrive(nullptr, true);
    Fiber* self = g_running;
    self->body_();
    self->ended_ = true;
    Leave(nullptr, g_callers_stack, g_callers_size);
}

bool Fiber::Start(std::function<void()> body) {
    body_ = std::move(body);
    ended_ = false;
    getcontext(&inside_);
    inside_.uc_stack.ss_sp = stack_;
    inside_.uc_stack.ss_size = kStackBytes;
    inside_.uc_link = &outside_;
    makecontext(&inside_, &Fiber::Enter, 0);
    return Resume();
}

bool Fiber::Resume() {
    g_running = this;
    void* fake_stack = nullptr;
    Leave(&fake_stack, stack_, kStackBytes);
    swapcontext(&outside_, &inside_);
    Arrive(fake_stack, false);
    g_running = nullptr;
    return ended_;
}

void Fiber::Pause() {
    Fiber* self = g_running;
    void* fake_stack = nullptr;
    Leave(&fake_stack, g_callers_stack, g_callers_size);
    swapcontext(&self->inside_, &self->outside_);
    Arrive(fake_stack, true);
}

}  // namespace ascend_sim
