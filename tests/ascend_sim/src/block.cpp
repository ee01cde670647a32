#include "block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "config.h"
#include "gm.h"
#include "report.h"

namespace ascend_sim {

namespace {

Block g_block;
alignas(64) uint8_t g_ub[kUbBytes];
ByteState g_states[kUbBytes];
bool g_ub_cleared = false;

const Call kExit{"kernel exit", CallSite{"", 0}};

}  // namespace

Block& CurrentBlock() { return g_block; }

Config& GlobalConfig() {
    static Config config;
    return config;
}

uint8_t* UbMemory() { return g_ub; }

ByteState* UbStates() { return g_states; }

void Block::Begin(const char* kernel_name, int64_t block_index, int64_t block_count, uint64_t poison_seed,
                  uint64_t bytes_of_arguments) {
    kernel = kernel_name;
    running = true;
    index = block_index;
    count = block_count;
    type = KernelType::Unset;
    argument_bytes = bytes_of_arguments;
    time.Reset();
    ForgetRunCode();
    clock.Begin(argument_bytes, block_count, GlobalConfig().memory_is_cold);
    for (auto& calls : log) {
        calls.assign(1, Call{nullptr, CallSite{"", 0}});
    }
    scalar_calls.assign(1, Call{nullptr, CallSite{"", 0}});
    scalar_call_ids.clear();
    recent_scalar_calls.fill(0);
    for (auto& clocks : seen) {
        clocks.assign(1, Clock{});
    }
    const uint32_t dirty = g_ub_cleared ? ub_touched : kUbBytes;
    g_ub_cleared = true;
    // 0x81..0xff: as an index or a length such a byte leads far out of range.
    std::memset(g_ub, static_cast<int>(0x81 + poison_seed % 0x7f), dirty);
    std::memset(g_states, static_cast<int>(ByteState::Unwritten), dirty);
    std::fill(cells.begin(), cells.begin() + (dirty + kUbBlock - 1) / kUbBlock, UbCell{});
    ub_touched = 0;
    for (auto& row : flags) {
        for (Flag& flag : row) {
            flag.set = false;
        }
    }
    std::memset(reserved_ids, 0, sizeof(reserved_ids));
    buffers.clear();
    pool_bytes = 0;
    pipe_alive = pipe_made = work_started = false;
    mask_counter = false;
    mask[0] = mask[1] = ~uint64_t{0};
    dequant_scale_set = false;
    atomic = 0;
    clean_lines.clear();
    clean_all = 0;
    dirty_lines.clear();
    living_pipe = nullptr;
    met = false;
    calls_made = 0;
    counters = Counters{};
}

void Block::NoteCall(const Call& call) {
    if (++calls_made > GlobalConfig().max_calls) {
        Fail(call, Pipe::S, "hang", "the block made more than %llu simulated calls; expected it to end",
             static_cast<unsigned long long>(GlobalConfig().max_calls));
    }
}

void Block::Finish() {
    clock.ReadArguments();
    for (int event = 0; event < kEvents; ++event) {
        for (int id = 0; id < kEventIds; ++id) {
            if (flags[event][id].set) {
                Complain(flags[event][id].call, Pipe::S, "flag.unbalanced",
                         "SetFlag<%s>(%d) was never waited for; expected a WaitFlag before the kernel ends, the flag "
                         "leaks into the next kernel",
                         EventName(static_cast<Event>(event)), id);
            }
        }
    }
    for (size_t i = 0; i < buffers.size(); ++i) {
        if (buffers[i].queued && buffers[i].state != BufferState::Free) {
            // One that is enqueued leaves a flag set; one that the kernel holds leaves nothing behind.
            const bool enqueued = buffers[i].state == BufferState::Enqueued;
            const auto say = GlobalConfig().as_built && !enqueued ? Warn : Complain;
            say(kExit, Pipe::S, "queue.not_freed",
                "queue buffer %zu (UB 0x%05x) is still %s; expected FreeTensor before the kernel ends", i,
                buffers[i].address, enqueued ? "enqueued" : "held by the kernel");
        }
    }
    if (mask_counter || mask[0] != ~uint64_t{0} || mask[1] != ~uint64_t{0}) {
        Complain(mask_call, Pipe::S, "mask.leak",
                 "the vector mask is not back to normal mode with all lanes at kernel end; expected SetMaskNorm and "
                 "ResetMask");
    }
    if (atomic != 0) {
        Complain(atomic_call, Pipe::S, "atomic.leak",
                 "an atomic mode is still on at kernel end; expected SetAtomicNone after the copies");
    }
    FinishScalarStores();
    LeaveCode();
    counters.KeepTime(clock);
    running = false;
}

void ParkBlock(ParkedBlock& parked) {
    // Everything the block owns moves out, so that the next block starts from a UB that looks used all over.
    parked.ub.assign(g_ub, g_ub + kUbBytes);
    parked.states.assign(g_states, g_states + kUbBytes);
    parked.block = std::move(g_block);
    g_ub_cleared = false;
}

void UnparkBlock(ParkedBlock& parked) {
    std::copy(parked.ub.begin(), parked.ub.end(), g_ub);
    std::copy(parked.states.begin(), parked.states.end(), g_states);
    g_block = std::move(parked.block);
    g_block.met = false;
    g_ub_cleared = false;
}

uint32_t Block::NoteScalarCall(const Call& call) {
    NoteCall(call);
    ++counters.calls[0];
    clock.Scalar(model::kScalarInstruction);
    const auto is_call = [&](uint32_t id) {
        const Call& known = scalar_calls[id];
        return known.site.line == call.site.line && known.name == call.name && known.site.file == call.site.file;
    };
    const auto line = static_cast<uint32_t>(call.site.line);
    uint32_t& recent = recent_scalar_calls[line % recent_scalar_calls.size()];
    if (is_call(recent)) {
        return recent;
    }
    auto& ids = scalar_call_ids[reinterpret_cast<uint64_t>(call.site.file) + line];
    const auto found = std::find_if(ids.begin(), ids.end(), is_call);
    if (found != ids.end()) {
        return recent = *found;
    }
    recent = static_cast<uint32_t>(scalar_calls.size());
    ids.push_back(recent);
    scalar_calls.push_back(call);
    return recent;
}

std::string LoggedCall(Pipe pipe, uint32_t number, uint32_t scalar_call) {
    const auto& calls = pipe == Pipe::S ? g_block.scalar_calls : g_block.log[Timeline::Index(pipe)];
    number = pipe == Pipe::S ? scalar_call : number;
    return number < calls.size() ? Where(calls[number]) : "an earlier call";
}

void NoteNop(const Call& call, Pipe pipe) {
    if (pipe == Pipe::V) {
        const auto say = GlobalConfig().as_built ? Warn : Fail;
        say(call, pipe, "range.nothing", "no elements; expected some, because only Atlas A2 and A3 then do nothing");
    }
    g_block.NoteCall(call);
    ++g_block.counters.nops;
}

}  // namespace ascend_sim
