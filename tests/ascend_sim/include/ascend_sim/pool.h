// UB buffers of the TPipe, queue states and flags, as the kernel-side classes see them.
#pragma once

#include <cstdint>

#include "ascend_sim/call.h"
#include "ascend_sim/runtime.h"
#include "ascend_sim/types.h"

namespace ascend_sim {

using Event = AscendC::HardEvent;

Pipe EventSource(Event event);
Pipe EventTarget(Event event);
const char* EventName(Event event);
Event EventBetween(const Call& call, pipe_t from, pipe_t to);

void SetFlag(const Call& call, Event event, int id);
void WaitFlag(const Call& call, Event event, int id);
int AllocateEventId(const Call& call, Event event);
int PeekEventId(const Call& call, Event event);
void ReleaseEventId(const Call& call, Event event, int id);
void PipeBarrier(const Call& call, pipe_t pipe);

void CreatePipe(const Call& call);
void ResetPipe(const Call& call);
// Waits for the events of freed queue buffers and for all pipes. Never throws: destructors call it.
void DestroyPipe(const Call& call) noexcept;
bool PipeAlive();

// Returns the index of the first of `count` buffers.
uint32_t AddBuffers(const Call& call, int64_t count, int64_t bytes, bool queued);
UbView BufferView(uint32_t buffer, AscendC::TPosition position);

// Queue transitions of a buffer in [first, first + count).
// `cursor`: the queue's next buffer, counted from its first.
uint32_t QueueAlloc(const Call& call, uint32_t first, uint32_t count, uint32_t& cursor, Event free_event);
void QueueEnter(const Call& call, uint32_t first, uint32_t count, uint32_t buffer, Event event);
void QueueLeave(const Call& call, uint32_t buffer, Event event);
void QueueFree(const Call& call, uint32_t first, uint32_t count, uint32_t buffer, Event event);
bool BufferIdle(uint32_t first, uint32_t count);

}  // namespace ascend_sim
