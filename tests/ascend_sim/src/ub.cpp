// Unified Buffer: order of accesses per 32-byte block, and what is known about each byte.
#include <algorithm>
#include <cstring>

#include "block.h"
#include "config.h"
#include "report.h"

namespace ascend_sim {

namespace {

// The remedy a reader needs to hear.
std::string MissingOrder(Pipe earlier, Pipe now) {
    if (earlier == now) {
        return Format("PipeBarrier<PIPE_%s> between the two", PipeName(now));
    }
    return Format("a %s_%s flag, a queue or PIPE_ALL between the two", PipeName(earlier), PipeName(now));
}

void ComplainOrder(const Call& call, Pipe pipe, const char* kind, const char* operand, uint32_t block, const char* did,
                   const char* does, Pipe earlier, uint32_t number, uint32_t scalar_call) {
    Complain(call, pipe, kind, "%s %s UB 0x%05x..0x%05x, which %s on pipe %s %s, and nothing orders them; expected %s",
             operand, does, block * kUbBlock, block * kUbBlock + kUbBlock,
             LoggedCall(earlier, number, scalar_call).c_str(), PipeName(earlier), did, MissingOrder(earlier, pipe).c_str());
}

// Outside strict mode the compiler's auto-sync is taken to order V with V, and S with every pipe.
bool AutoSynced(Pipe a, Pipe b) {
    return !GlobalConfig().strict && (a == Pipe::S || b == Pipe::S || (a == Pipe::V && b == Pipe::V));
}

// What the compiler inserts orders more than the two accesses: a flag tells the waiter all that its setter had waited
// for, and a waiting S holds back every pipe. The flag is taken to be set at once after the earlier access, where it
// says least.
void InsertSync(Block& now, Pipe pipe, Pipe earlier, uint32_t number) {
    if (earlier == pipe) {
        now.time.Barrier(pipe);
        return;
    }
    Clock seen;
    if (earlier == Pipe::S && number == now.time.Issued(Pipe::S)) {
        seen = now.time.Release(Pipe::S);
    } else {
        // What S knew in an earlier epoch every pipe knows.
        seen = earlier == Pipe::S ? Clock{} : now.seen[Timeline::Index(earlier)][number];
        seen.at[Timeline::Index(earlier)] = number;
    }
    now.time.Acquire(pipe, seen);
}

}  // namespace

bool OrderedAfter(Block& now, Pipe pipe, Pipe earlier, uint32_t number) {
    if (now.time.Ordered(pipe, earlier, number)) {
        return true;
    }
    if (!AutoSynced(pipe, earlier)) {
        return false;
    }
    InsertSync(now, pipe, earlier, number);
    return true;
}

namespace {

// Reports at most one conflict per operand.
bool CheckCell(const Call& call, Pipe pipe, const char* operand, uint32_t block, bool write) {
    Block& now = CurrentBlock();
    const UbCell& cell = now.cells[block];
    // A reader since the last write says more than that write does.
    for (int reader = 0; write && reader < kPipes; ++reader) {
        if (cell.read[reader] != 0 && !OrderedAfter(now, pipe, static_cast<Pipe>(reader), cell.read[reader])) {
            ComplainOrder(call, pipe, "order.war", operand, block, "reads", "overwrites", static_cast<Pipe>(reader),
                          cell.read[reader], cell.scalar_read);
            return false;
        }
    }
    if (cell.write != 0 && !OrderedAfter(now, pipe, cell.writer, cell.write)) {
        ComplainOrder(call, pipe, write ? "order.waw" : "order.raw", operand, block, "writes",
                      write ? "overwrites" : "reads", cell.writer, cell.write, cell.scalar_write);
        return false;
    }
    return true;
}

template <class Visit>
void EachBlock(const Ranges& ranges, Visit visit) {
    for (uint32_t i = 0; i < ranges.count && ranges.bytes != 0; ++i) {
        const uint32_t start = static_cast<uint32_t>(ranges.first + i * ranges.pitch);
        const uint32_t last = (start + ranges.bytes - 1) / kUbBlock;
        for (uint32_t block = start / kUbBlock; block <= last; ++block) {
            if (!visit(block)) {
                return;
            }
        }
    }
}

}  // namespace

void CheckUbOrder(const Call& call, Pipe pipe, const char* operand, const Ranges& ranges, bool write) {
    EachBlock(ranges, [&](uint32_t block) { return CheckCell(call, pipe, operand, block, write); });
}

void RecordUb(Pipe pipe, uint32_t number, const Ranges& ranges, bool write) {
    Block& now = CurrentBlock();
    const int index = Timeline::Index(pipe);
    EachBlock(ranges, [&](uint32_t block) {
        UbCell& cell = now.cells[block];
        if (write) {
            cell.write = number;
            cell.writer = pipe;
            std::fill(cell.read, cell.read + kPipes, 0u);
        } else {
            cell.read[index] = number;
        }
        return true;
    });
    if (ranges.count != 0) {
        const uint64_t end = ranges.first + (ranges.count - 1) * ranges.pitch + ranges.bytes;
        now.ub_touched = std::max(now.ub_touched, static_cast<uint32_t>((end + kUbBlock - 1) / kUbBlock * kUbBlock));
    }
}

static_assert(static_cast<int>(ByteState::Defined) == 0, "WorstUb looks for bits");

void MarkUb(uint32_t address, uint32_t bytes, ByteState state) {
    std::memset(UbStates() + address, static_cast<int>(state), bytes);
}

ByteState WorstUb(uint32_t address, uint32_t bytes) {
    const ByteState* states = UbStates() + address;
    // Almost always everything is defined, which is all zero bits.
    uint32_t at = 0;
    uint64_t any = 0;
    for (; at + 8 <= bytes && any == 0; at += 8) {
        std::memcpy(&any, states + at, 8);
    }
    at = any == 0 ? at : 0;
    ByteState worst = ByteState::Defined;
    for (; at < bytes; ++at) {
        worst = std::max(worst, states[at]);
    }
    return worst;
}

void ExposeUb(const Call& call, const UbView& view) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    Warn(call, Pipe::S, "ub.raw_pointer",
         "a pointer to UB 0x%05x..0x%05x: what is read and written through it is not checked", view.address,
         view.address + view.bytes);
    now.ub_touched = std::max(now.ub_touched, (view.address + view.bytes + kUbBlock - 1) / kUbBlock * kUbBlock);
    MarkUb(view.address, view.bytes, ByteState::Defined);
}

void PropagateLanes(LaneRun dst, LaneRun src0, LaneRun src1, uint32_t lanes) {
    const ByteState worst0 = WorstUb(src0.address, src0.lane_bytes * lanes);
    const ByteState worst1 = WorstUb(src1.address, src1.lane_bytes * lanes);
    if (worst0 == ByteState::Defined && worst1 == ByteState::Defined) {
        MarkUb(dst.address, dst.lane_bytes * lanes, ByteState::Defined);
        return;
    }
    for (uint32_t i = 0; i < lanes; ++i) {
        const ByteState state = std::max(WorstUb(src0.address + i * src0.lane_bytes, src0.lane_bytes),
                                         WorstUb(src1.address + i * src1.lane_bytes, src1.lane_bytes));
        MarkUb(dst.address + i * dst.lane_bytes, dst.lane_bytes, state);
    }
}

void ScalarUbRead(const Call& call, uint32_t address, uint32_t bytes) {
    Block& now = CurrentBlock();
    const uint32_t id = now.NoteScalarCall(call);
    ++now.counters.ub_scalar_reads;
    now.clock.Scalar(model::kUbLoadStall);
    const uint32_t block = address / kUbBlock;
    CheckCell(call, Pipe::S, "source", block, false);
    now.cells[block].read[0] = now.time.Issued(Pipe::S);
    now.cells[block].scalar_read = id;
    const ByteState state = WorstUb(address, bytes);
    if (state != ByteState::Defined) {
        Complain(call, Pipe::S, state == ByteState::Padding ? "read.padding" : "read.unwritten",
                 "reads UB 0x%05x..0x%05x, which %s; expected defined bytes", address, address + bytes,
                 state == ByteState::Padding ? "is padding of a copy" : "nothing has written");
    }
}

void ScalarUbWrite(const Call& call, uint32_t address, uint32_t bytes) {
    Block& now = CurrentBlock();
    const uint32_t id = now.NoteScalarCall(call);
    ++now.counters.ub_scalar_writes;
    const uint32_t block = address / kUbBlock;
    CheckCell(call, Pipe::S, "destination", block, true);
    RecordUb(Pipe::S, now.time.Issued(Pipe::S), Ranges{address, bytes, 1, 0}, true);
    now.cells[block].scalar_write = id;
    MarkUb(address, bytes, ByteState::Defined);
}

}  // namespace ascend_sim
