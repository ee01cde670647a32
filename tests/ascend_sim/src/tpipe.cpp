#include "ascend_sim/tpipe.h"

namespace AscendC {

namespace {

TPipe* g_pipe = nullptr;

}  // namespace

TPipe::TPipe(CallSite site) {
    Init(site);
}

TPipe::~TPipe() {
    Destroy(CallSite{"", 0});
}

void TPipe::Init(CallSite site) {
    ascend_sim::CreatePipe(Call{"TPipe::Init", site});
    alive_ = true;
    g_pipe = this;
}

void TPipe::Reset(CallSite site) {
    ascend_sim::ResetPipe(Call{"TPipe::Reset", site});
}

void TPipe::Destroy(CallSite site) {
    if (alive_) {
        ascend_sim::DestroyPipe(Call{"TPipe::Destroy", site});
        alive_ = false;
        g_pipe = g_pipe == this ? nullptr : g_pipe;
    }
}

TPipe* LivingPipe() {
    if (g_pipe == nullptr) {
        ascend_sim::Fail(Call{"GetTPipePtr", CallSite{"", 0}}, ascend_sim::Pipe::S, "pipe.dead",
                         "no TPipe is alive; expected one");
    }
    return g_pipe;
}

}  // namespace AscendC

AscendC::TPipe* GetTPipePtr() {
    return AscendC::LivingPipe();
}
