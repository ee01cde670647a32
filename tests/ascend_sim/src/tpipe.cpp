#include "ascend_sim/tpipe.h"

#include "block.h"

namespace AscendC {

TPipe::TPipe(CallSite site) { Init(site); }

TPipe::~TPipe() { Destroy(CallSite{"", 0}); }

void TPipe::Init(CallSite site) {
    ascend_sim::CreatePipe(Call{"TPipe::Init", site});
    alive_ = true;
    ascend_sim::CurrentBlock().living_pipe = this;
}

void TPipe::Reset(CallSite site) { ascend_sim::ResetPipe(Call{"TPipe::Reset", site}); }

void TPipe::Destroy(CallSite site) {
    if (alive_) {
        ascend_sim::DestroyPipe(Call{"TPipe::Destroy", site});
        alive_ = false;
        void*& living = ascend_sim::CurrentBlock().living_pipe;
        living = living == this ? nullptr : living;
    }
}

TPipe* LivingPipe() {
    auto* pipe = static_cast<TPipe*>(ascend_sim::CurrentBlock().living_pipe);
    if (pipe == nullptr) {
        ascend_sim::Fail(Call{"GetTPipePtr", CallSite{"", 0}}, ascend_sim::Pipe::S, "pipe.dead",
                         "no TPipe is alive; expected one");
    }
    return pipe;
}

}  // namespace AscendC

AscendC::TPipe* GetTPipePtr() { return AscendC::LivingPipe(); }
