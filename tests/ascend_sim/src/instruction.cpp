#include "ascend_sim/instruction.h"

#include <algorithm>
#include <vector>

#include "block.h"
#include "config.h"
#include "gm.h"
#include "report.h"

namespace ascend_sim {

namespace {

struct UbOperand {
    const char* name;
    Ranges ranges;
    bool write;
};

// One instruction is under construction at a time.
std::vector<UbOperand> g_operands;
std::vector<GmAccess> g_gm_accesses;

uint64_t EndOf(const Ranges& ranges) {
    return ranges.count == 0 ? ranges.first : ranges.first + (ranges.count - 1) * ranges.pitch + ranges.bytes;
}

}  // namespace

Instruction::Instruction(const char* name, CallSite site, Pipe pipe) : call_{name, site}, pipe_(pipe) {
    g_operands.clear();
    g_gm_accesses.clear();
    Block& now = CurrentBlock();
    now.NoteCall(call_);
    if (!now.running) {
        Fail(call_, pipe_, "launch", "called outside a kernel");
    }
    if (!now.pipe_alive) {
        Complain(call_, pipe_, "pipe.dead", "no TPipe is alive; expected one from before the first instruction on");
    }
    now.work_started = true;
}

void Instruction::CheckUb(const char* operand, const UbView& view, const Ranges& ranges) const {
    using AscendC::TPosition;
    if (view.position != TPosition::VECIN && view.position != TPosition::VECOUT &&
        view.position != TPosition::VECCALC) {
        Fail(call_, pipe_, "position", "%s is not a tensor of a VECIN, VECOUT or VECCALC buffer", operand);
    }
    const Block& now = CurrentBlock();
    if (view.buffer != kNoBuffer) {
        if (view.buffer >= now.buffers.size()) {
            Fail(call_, pipe_, "buffer.dead", "%s lies in a buffer that the TPipe has given up", operand);
        }
        if (now.buffers[view.buffer].queued && now.buffers[view.buffer].state == BufferState::Free) {
            Fail(call_, pipe_, "queue.use_after_free",
                 "%s lies in queue buffer %u, which is free; expected an AllocTensor or DeQue that owns it", operand,
                 view.buffer);
        }
    }
    if (ranges.first % kUbBlock != 0) {
        Fail(call_, pipe_, "align.ub", "%s starts at UB 0x%05llx; expected a multiple of 32 bytes", operand,
             static_cast<unsigned long long>(ranges.first));
    }
    const uint64_t end = EndOf(ranges);
    if (end > uint64_t{view.address} + view.bytes) {
        Fail(call_, pipe_, "bounds.ub",
             "%s needs UB 0x%05llx..0x%05llx (%llu bytes); expected at most the %u bytes that the tensor has from "
             "0x%05x",
             operand, static_cast<unsigned long long>(ranges.first), static_cast<unsigned long long>(end),
             static_cast<unsigned long long>(end - ranges.first), view.bytes, view.address);
    }
}

void Instruction::ReadUb(const char* operand, const UbView& view, const Ranges& ranges) {
    CheckUb(operand, view, ranges);
    g_operands.push_back(UbOperand{operand, ranges, false});
}

void Instruction::WriteUb(const char* operand, const UbView& view, const Ranges& ranges) {
    CheckUb(operand, view, ranges);
    g_operands.push_back(UbOperand{operand, ranges, true});
}

const uint8_t* Instruction::ReadGm(const char* operand, const GmView& view, const Ranges& ranges, uint32_t align) {
    const GmAccess access = ResolveGm(call_, pipe_, operand, view, ranges, align);
    g_gm_accesses.push_back(access);
    return access.host;
}

uint8_t* Instruction::WriteGm(const char* operand, const GmView& view, const Ranges& ranges, uint32_t align,
                              bool atomic) {
    GmAccess access = ResolveGm(call_, pipe_, operand, view, ranges, align);
    access.write = true;
    access.atomic = atomic;
    g_gm_accesses.push_back(access);
    return access.host;
}

void Instruction::Issue(uint64_t elements, double per_cycle) {
    Block& now = CurrentBlock();
    const int index = Timeline::Index(pipe_);
    for (const UbOperand& operand : g_operands) {
        CheckUbOrder(call_, pipe_, operand.name, operand.ranges, operand.write);
    }
    const uint32_t number = now.time.Issue(pipe_);
    now.log[index].push_back(call_);
    if (!GlobalConfig().strict) {
        Clock seen;
        for (int p = 0; p < kPipes; ++p) {
            seen.at[p] = now.time.Known(pipe_, static_cast<Pipe>(p));
        }
        now.seen[index].push_back(seen);
    }
    // Reads first: an instruction that writes what it reads is its own last writer.
    for (const bool write : {false, true}) {
        for (const UbOperand& operand : g_operands) {
            if (operand.write == write) {
                RecordUb(pipe_, number, operand.ranges, write);
            }
        }
    }
    for (const GmAccess& access : g_gm_accesses) {
        CheckAndRecordGm(call_, pipe_, access, number);
    }
    now.counters.calls[index] += 1;
    now.counters.elements[index] += elements;
    if (pipe_ == Pipe::V) {
        now.clock.Vector(elements, per_cycle);
    } else {
        // From the allocation's start: those of torch on a device begin at multiples of 512 bytes, the host's anywhere.
        const GmAccess& access = g_gm_accesses.front();
        Ranges rows = access.ranges;
        rows.first -= access.allocation->address;
        now.clock.Copy(pipe_, rows);
    }
}

}  // namespace ascend_sim
