// State of the block that is running. Blocks run one after another, so there is exactly one.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ascend_sim/instruction.h"
#include "ascend_sim/pool.h"
#include "clock.h"
#include "counters.h"
#include "time_model.h"

namespace ascend_sim {

// Hazard state of one 32-byte block of UB: its last writer, and the last reader of each pipe since then.
struct UbCell {
    uint32_t write = 0;
    uint32_t read[kPipes] = {0, 0, 0, 0};
    uint32_t scalar_read = 0;  // which call it was, where S reads or writes: Block::scalar_calls
    uint32_t scalar_write = 0;
    Pipe writer = Pipe::S;
};

struct Flag {
    bool set = false;
    Clock clock;
    double seen = 0;  // by its waiter, in the time model
    Call call{};
};

constexpr int kEvents = 13;
constexpr int kEventIds = 8;
constexpr uint32_t kUbBlock = 32;    // bytes
constexpr uint64_t kCacheLine = 64;  // bytes

enum class BufferState : uint8_t { Free, Occupied, Enqueued, Dequeued };

struct PoolBuffer {
    uint32_t address = 0;
    uint32_t bytes = 0;
    bool queued = false;  // belongs to a TQue, not to a TBuf
    BufferState state = BufferState::Free;
    int enqueue_event = -1;
    int free_event = -1;
    Event free_kind = Event{};
};

struct Block {
    const char* kernel = "";
    bool running = false;
    int64_t index = 0;
    int64_t count = 0;
    KernelType type = KernelType::Unset;
    uint64_t argument_bytes = 0;

    Timeline time;
    BlockTime clock;
    std::vector<Call> log[kPipes];   // what instruction number n of a queue was
    std::vector<Call> scalar_calls;  // each line of the kernel that makes scalar accesses, from 1
    std::unordered_map<uint64_t, std::vector<uint32_t>> scalar_call_ids;
    std::array<uint32_t, 64> recent_scalar_calls{};  // by line: a kernel makes such accesses in loops
    std::vector<Clock> seen[kPipes];  // outside strict mode: what instruction n of a queue could rely on
    std::array<UbCell, kUbBytes / kUbBlock> cells;
    uint32_t ub_touched = 0;  // bytes from the start of UB that need clearing for the next block

    Flag flags[kEvents][kEventIds];
    uint8_t reserved_ids[kEvents] = {};

    std::vector<PoolBuffer> buffers;
    uint32_t pool_bytes = 0;
    bool pipe_alive = false;
    bool pipe_made = false;
    bool work_started = false;

    bool mask_counter = false;
    uint64_t mask[2] = {~uint64_t{0}, ~uint64_t{0}};
    Call mask_call{};
    float dequant_scale = 0;
    bool dequant_scale_set = false;
    int atomic = 0;
    Call atomic_call{};

    std::unordered_map<uint64_t, uint32_t> clean_lines;  // cache line -> last MTE3 instruction it is fresh after
    uint32_t clean_all = 0;
    std::unordered_map<uint64_t, Call> dirty_lines;

    void* living_pipe = nullptr;  // the TPipe that GetTPipePtr gives
    bool met = false;             // waits in SyncAll for the other blocks
    Call sync_call{};

    uint64_t calls_made = 0;
    Counters counters;

    void Begin(const char* kernel_name, int64_t block_index, int64_t block_count, uint64_t poison_seed,
               uint64_t bytes_of_arguments);
    // Checks what a kernel must have tidied up. Never throws.
    void Finish();
    void NoteCall(const Call& call);
    // The same for a scalar access. Returns its index in scalar_calls.
    uint32_t NoteScalarCall(const Call& call);
};

Block& CurrentBlock();

// A block that waits in SyncAll, with its UB.
struct ParkedBlock {
    Block block;
    std::vector<uint8_t> ub;
    std::vector<ByteState> states;
};
void ParkBlock(ParkedBlock& parked);
void UnparkBlock(ParkedBlock& parked);

// The call that made instruction `number` of `pipe`, or the scalar access `scalar_call`, for messages.
std::string LoggedCall(Pipe pipe, uint32_t number, uint32_t scalar_call);

// Order checks of one UB access; false in *ordered means an error was reported.
void CheckUbOrder(const Call& call, Pipe pipe, const char* operand, const Ranges& ranges, bool write);
// Whether instruction `number` of `earlier` is finished for `pipe`; outside strict mode also if the compiler sees to it, as
// it does between two vector instructions and beside S. Then its synchronisation is in force from here on.
bool OrderedAfter(Block& now, Pipe pipe, Pipe earlier, uint32_t number);
void RecordUb(Pipe pipe, uint32_t number, const Ranges& ranges, bool write);

}  // namespace ascend_sim
