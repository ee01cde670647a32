#include "fiber.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace ascend_sim {

namespace {

constexpr size_t kStackBytes = size_t{1} << 20;
constexpr size_t kGuardBytes = 4096;

Fiber* g_running = nullptr;

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
    Fiber* self = g_running;
    self->body_();
    self->ended_ = true;
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
    swapcontext(&outside_, &inside_);
    g_running = nullptr;
    return ended_;
}

void Fiber::Pause() {
    Fiber* self = g_running;
    swapcontext(&self->inside_, &self->outside_);
}

}  // namespace ascend_sim
