// The TPipe's UB pool and the life of queue buffers.
#include "ascend_sim/pool.h"

#include <algorithm>

#include "ascend_sim/composite.h"
#include "block.h"
#include "config.h"
#include "report.h"

namespace ascend_sim {

namespace {

constexpr int64_t kMaxBuffers = 64;
// 184 KB, less the 256 B that later toolkits reserve.
constexpr int64_t kPoolBytes = 184 * 1024 - 256;

const char* StateName(BufferState state) {
    switch (state) {
        case BufferState::Free:
            return "free";
        case BufferState::Occupied:
            return "allocated";
        case BufferState::Enqueued:
            return "enqueued";
        case BufferState::Dequeued:
            return "dequeued";
    }
    return "?";
}

PoolBuffer& OwnBuffer(const Call& call, uint32_t first, uint32_t count, uint32_t buffer) {
    Block& now = CurrentBlock();
    if (buffer < first || buffer >= first + count || buffer >= now.buffers.size()) {
        Fail(call, Pipe::S, "queue.foreign", "the tensor does not come from this queue; expected one of its %u buffers",
             count);
    }
    return now.buffers[buffer];
}

}  // namespace

bool PipeAlive() { return CurrentBlock().pipe_alive; }

void CreatePipe(const Call& call) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    now.clock.ReadArguments();
    if (now.pipe_alive) {
        Complain(call, Pipe::S, "pipe.second", "a TPipe is alive already; expected one per kernel");
    }
    now.pipe_alive = true;
    now.pipe_made = true;
    now.buffers.clear();
    now.pool_bytes = 0;
}

namespace {

void WaitForFreedBuffers(Block& now) noexcept {
    for (PoolBuffer& buffer : now.buffers) {
        if (buffer.free_event >= 0) {
            Flag& flag = now.flags[static_cast<int>(buffer.free_kind)][buffer.free_event];
            if (flag.set) {
                flag.set = false;
                now.time.Acquire(EventTarget(buffer.free_kind), flag.clock);
                now.clock.WaitFlag(EventTarget(buffer.free_kind), flag.seen);
            }
            now.reserved_ids[static_cast<int>(buffer.free_kind)] &= static_cast<uint8_t>(~(1u << buffer.free_event));
            buffer.free_event = -1;
        }
    }
}

}  // namespace

void ResetPipe(const Call& call) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    WaitForFreedBuffers(now);
    now.time.BarrierAll();
    now.buffers.clear();
    now.pool_bytes = 0;
    now.work_started = false;
}

void DestroyPipe(const Call& call) noexcept {
    (void)call;
    Block& now = CurrentBlock();
    if (!now.pipe_alive) {
        return;
    }
    WaitForFreedBuffers(now);
    now.time.BarrierAll();
    now.pipe_alive = false;
}

uint32_t AddBuffers(const Call& call, int64_t count, int64_t bytes, bool queued) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    if (!now.pipe_alive) {
        Fail(call, Pipe::S, "pipe.dead", "InitBuffer without a living TPipe");
    }
    if (count < 1 || count > kMaxBuffers || bytes < 0 || bytes > int64_t{kUbBytes}) {
        Fail(call, Pipe::S, "budget.ub", "asks for %lld buffers of %lld bytes; expected 1..64 buffers of 1..%lld bytes",
             static_cast<long long>(count), static_cast<long long>(bytes), static_cast<long long>(kPoolBytes));
    }
    if (bytes == 0) {
        Complain(call, Pipe::S, "buffer.empty",
                 "a buffer of 0 bytes: it lies where the next one does; expected at least 32, or no InitBuffer");
    }
    if (now.work_started && GlobalConfig().strict) {
        Complain(
            call, Pipe::S, "pipe.init_after_use",
            "InitBuffer after the first instruction; expected all buffers to be made before, nothing is given back "
            "inside a loop");
    }
    const int64_t rounded = (bytes + kUbBlock - 1) / kUbBlock * kUbBlock;
    const int64_t total = now.pool_bytes + count * rounded;
    if (total > kPoolBytes) {
        // The chip has 192 KB: what lies above the limit works until a call writes its scratch there.
        const auto say = total > int64_t{kUbBytes} ? Fail : Complain;
        say(call, Pipe::S, "budget.ub",
            "needs %lld bytes of UB in all (%u before, %lld x %lld now); expected at most %lld",
            static_cast<long long>(total), now.pool_bytes, static_cast<long long>(count),
            static_cast<long long>(rounded), static_cast<long long>(kPoolBytes));
    }
    if (static_cast<int64_t>(now.buffers.size()) + count > kMaxBuffers) {
        Fail(call, Pipe::S, "budget.buffers", "makes %lld buffers in all; expected at most 64 per TPipe",
             static_cast<long long>(static_cast<int64_t>(now.buffers.size()) + count));
    }
    const uint32_t first = static_cast<uint32_t>(now.buffers.size());
    for (int64_t i = 0; i < count; ++i) {
        PoolBuffer buffer;
        buffer.address = now.pool_bytes;
        buffer.bytes = static_cast<uint32_t>(rounded);
        buffer.queued = queued;
        now.buffers.push_back(buffer);
        now.pool_bytes += buffer.bytes;
    }
    now.counters.ub_peak_bytes = std::max(now.counters.ub_peak_bytes, now.pool_bytes);
    return first;
}

UbView BufferView(uint32_t buffer, AscendC::TPosition position) {
    const PoolBuffer& found = CurrentBlock().buffers[buffer];
    return UbView{found.address, found.bytes, buffer, position};
}

uint32_t QueueAlloc(const Call& call, uint32_t first, uint32_t count, uint32_t& cursor, Event free_event) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    // Round and round, as the device goes: the buffer freed last comes last.
    for (uint32_t tried = 0; tried < count; ++tried) {
        const uint32_t i = first + cursor;
        cursor = (cursor + 1) % count;
        if (i >= now.buffers.size()) {
            continue;
        }
        PoolBuffer& buffer = now.buffers[i];
        if (buffer.state != BufferState::Free) {
            continue;
        }
        if (buffer.free_event >= 0) {
            WaitFlag(call, free_event, buffer.free_event);
            ReleaseEventId(call, free_event, buffer.free_event);
            buffer.free_event = -1;
        }
        buffer.state = BufferState::Occupied;
        return i;
    }
    Fail(call, Pipe::S, "queue.exhausted",
         "AllocTensor finds none of the queue's %u buffers free; expected a FreeTensor before", count);
}

void QueueEnter(const Call& call, uint32_t first, uint32_t count, uint32_t index, Event event) {
    CurrentBlock().NoteCall(call);
    PoolBuffer& buffer = OwnBuffer(call, first, count, index);
    if (buffer.state != BufferState::Occupied && buffer.state != BufferState::Dequeued) {
        Fail(call, Pipe::S, "queue.state", "EnQue of a buffer that is %s; expected one from AllocTensor",
             StateName(buffer.state));
    }
    buffer.state = BufferState::Enqueued;
    buffer.enqueue_event = event == Event::V_V ? 0 : AllocateEventId(call, event);
    SetFlag(call, event, buffer.enqueue_event);
}

void QueueLeave(const Call& call, uint32_t index, Event event) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    PoolBuffer& buffer = now.buffers[index];
    buffer.state = BufferState::Dequeued;
    WaitFlag(call, event, buffer.enqueue_event);
    if (event != Event::V_V) {
        ReleaseEventId(call, event, buffer.enqueue_event);
    }
    buffer.enqueue_event = -1;
}

void QueueFree(const Call& call, uint32_t first, uint32_t count, uint32_t index, Event event) {
    CurrentBlock().NoteCall(call);
    PoolBuffer& buffer = OwnBuffer(call, first, count, index);
    if (buffer.state == BufferState::Free || buffer.state == BufferState::Enqueued) {
        Fail(call, Pipe::S, "queue.state", "FreeTensor of a buffer that is %s; expected one from AllocTensor or DeQue",
             StateName(buffer.state));
    }
    buffer.state = BufferState::Free;
    if (event == Event::V_V) {
        SetFlag(call, event, 0);
        return;
    }
    buffer.free_event = AllocateEventId(call, event);
    buffer.free_kind = event;
    SetFlag(call, event, buffer.free_event);
}

UbView UnclaimedUb() {
    const uint32_t claimed = std::min(CurrentBlock().pool_bytes, static_cast<uint32_t>(kPoolBytes));
    return UbView{claimed, static_cast<uint32_t>(kPoolBytes) - claimed, kNoBuffer, AscendC::TPosition::VECCALC};
}

bool WorkStarted() { return CurrentBlock().work_started; }

void SetWorkStarted(bool started) { CurrentBlock().work_started = started; }

bool BufferIdle(uint32_t first, uint32_t count) {
    const Block& now = CurrentBlock();
    for (uint32_t i = first; i < first + count && i < now.buffers.size(); ++i) {
        if (now.buffers[i].state == BufferState::Free) {
            return true;
        }
    }
    return false;
}

}  // namespace ascend_sim
