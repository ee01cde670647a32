// A function with a stack of its own, so that a block can stop in SyncAll while others run. One thread.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace ascend_sim {

class Fiber {
  public:
    Fiber();
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Runs `body` until it ends or pauses. True when it has ended.
    bool Start(std::function<void()> body);
    bool Resume();
    // Called from inside the body: goes back to whoever started or resumed it.
    static void Pause();

  private:
    static void Enter();

    ucontext_t inside_;
    ucontext_t outside_;
    std::function<void()> body_;
    void* stack_;
    bool ended_ = true;
};

}  // namespace ascend_sim
