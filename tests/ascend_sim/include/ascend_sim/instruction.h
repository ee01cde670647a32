// One queued instruction (vector or copy): declares what it touches, is checked, then its effect is computed.
#pragma once

#include <cstdint>

#include "ascend_sim/runtime.h"

namespace ascend_sim {

// A view of global memory: what a GlobalTensor is made of. `bytes` is what SetGlobalBuffer was told.
struct GmView {
    uint64_t address = 0;
    uint64_t bytes = ~uint64_t{0};
};

class Instruction {
  public:
    Instruction(const char* name, CallSite site, Pipe pipe);
    Instruction(const Instruction&) = delete;
    Instruction& operator=(const Instruction&) = delete;

    // Operands. Each checks alignment, position and extent at once and is remembered for Issue.
    void ReadUb(const char* operand, const UbView& view, const Ranges& ranges);
    void WriteUb(const char* operand, const UbView& view, const Ranges& ranges);
    // Return the host address of the first byte.
    const uint8_t* ReadGm(const char* operand, const GmView& view, const Ranges& ranges, uint32_t align);
    uint8_t* WriteGm(const char* operand, const GmView& view, const Ranges& ranges, uint32_t align, bool atomic);

    // Orders the instruction after what its pipe knows to be finished, reports every access that this leaves
    // unordered, and counts it. `per_cycle` is the published peak rate in elements (vector) or 0 (copies).
    void Issue(uint64_t elements, double per_cycle);

    const Call& call() const { return call_; }
    Pipe pipe() const { return pipe_; }

  private:
    void CheckUb(const char* operand, const UbView& view, const Ranges& ranges) const;

    Call call_;
    Pipe pipe_;
};

// Effects on what is known about UB bytes.
void MarkUb(uint32_t address, uint32_t bytes, ByteState state);
ByteState WorstUb(uint32_t address, uint32_t bytes);
// dst lane i becomes as bad as the worst of lane i of the sources (src1 may be absent: bytes per lane 0).
struct LaneRun {
    uint32_t address;
    uint32_t lane_bytes;
};
void PropagateLanes(LaneRun dst, LaneRun src0, LaneRun src1, uint32_t lanes);
// Global memory: bytes that no one wrote since registration stay unwritten when copied into UB.
void LoadGmStates(uint64_t gm_address, uint32_t ub_address, uint32_t bytes);

}  // namespace ascend_sim
