// Flags and barriers.
#include "ascend_sim/pool.h"
#include "block.h"
#include "config.h"
#include "report.h"

namespace ascend_sim {

namespace {

struct EventInfo {
    const char* name;
    Pipe source;
    Pipe target;
};

constexpr EventInfo kEventTable[kEvents] = {
    {"MTE2_V", Pipe::Mte2, Pipe::V},       {"V_MTE2", Pipe::V, Pipe::Mte2}, {"MTE3_V", Pipe::Mte3, Pipe::V},
    {"V_MTE3", Pipe::V, Pipe::Mte3},       {"V_V", Pipe::V, Pipe::V},       {"MTE2_MTE3", Pipe::Mte2, Pipe::Mte3},
    {"MTE3_MTE2", Pipe::Mte3, Pipe::Mte2}, {"S_V", Pipe::S, Pipe::V},       {"V_S", Pipe::V, Pipe::S},
    {"S_MTE2", Pipe::S, Pipe::Mte2},       {"MTE2_S", Pipe::Mte2, Pipe::S}, {"S_MTE3", Pipe::S, Pipe::Mte3},
    {"MTE3_S", Pipe::Mte3, Pipe::S},
};

const EventInfo& Info(Event event) { return kEventTable[static_cast<int>(event)]; }

Flag& FlagAt(const Call& call, Event event, int id) {
    if (id < 0 || id >= kEventIds) {
        Fail(call, Info(event).source, "flag.id", "event id of %s is %d; expected 0..7", EventName(event), id);
    }
    return CurrentBlock().flags[static_cast<int>(event)][id];
}

}  // namespace

Pipe EventSource(Event event) { return Info(event).source; }

Pipe EventTarget(Event event) { return Info(event).target; }

const char* EventName(Event event) { return Info(event).name; }

Event EventBetween(const Call& call, pipe_t from, pipe_t to) {
    for (int event = 0; event < kEvents; ++event) {
        if (from == static_cast<pipe_t>(kEventTable[event].source) &&
            to == static_cast<pipe_t>(kEventTable[event].target)) {
            return static_cast<Event>(event);
        }
    }
    Fail(call, Pipe::S, "flag.pipes", "no flag goes from pipe %d to pipe %d; expected two of S, V, MTE2 and MTE3",
         static_cast<int>(from), static_cast<int>(to));
}

void SetFlag(const Call& call, Event event, int id) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    ++now.counters.flags_set;
    if (event == Event::V_V) {
        now.time.Barrier(Pipe::V);
        now.clock.Barrier(Pipe::V);
        return;
    }
    Flag& flag = FlagAt(call, event, id);
    if (flag.set) {
        Complain(call, EventSource(event), "flag.double_set",
                 "%s id %d is already set by %s; expected a WaitFlag before it is set again", EventName(event), id,
                 Where(flag.call).c_str());
    }
    flag.set = true;
    flag.clock = now.time.Release(EventSource(event));
    flag.seen = now.clock.SetFlag(EventSource(event));
    flag.call = call;
}

void WaitFlag(const Call& call, Event event, int id) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    ++now.counters.flags_waited;
    if (event == Event::V_V) {
        return;
    }
    Flag& flag = FlagAt(call, event, id);
    if (!flag.set) {
        Fail(call, EventTarget(event), "flag.wait_unset",
             "waits for %s id %d, which nothing has set: the core would hang; expected a SetFlag before",
             EventName(event), id);
    }
    flag.set = false;
    now.time.Acquire(EventTarget(event), flag.clock);
    now.clock.WaitFlag(EventTarget(event), flag.seen);
}

int PeekEventId(const Call& call, Event event) {
    const Block& now = CurrentBlock();
    for (int id = 0; id < kEventIds; ++id) {
        if ((now.reserved_ids[static_cast<int>(event)] & (1u << id)) == 0) {
            return id;
        }
    }
    Fail(call, EventSource(event), "flag.no_id", "all 8 event ids of %s are reserved; expected a free one",
         EventName(event));
}

int AllocateEventId(const Call& call, Event event) {
    const int id = PeekEventId(call, event);
    CurrentBlock().reserved_ids[static_cast<int>(event)] |= static_cast<uint8_t>(1u << id);
    return id;
}

void ReleaseEventId(const Call& call, Event event, int id) {
    FlagAt(call, event, id);
    uint8_t& reserved = CurrentBlock().reserved_ids[static_cast<int>(event)];
    if ((reserved & (1u << id)) == 0) {
        Complain(call, EventSource(event), "flag.release", "event id %d of %s is not reserved; expected AllocEventID",
                 id, EventName(event));
    }
    reserved &= static_cast<uint8_t>(~(1u << id));
}

void PipeBarrier(const Call& call, pipe_t pipe) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    ++now.counters.barriers;
    if (pipe == PIPE_S) {
        Fail(call, Pipe::S, "pipe.barrier", "PIPE_S is in order already; the device does not support a barrier on it");
    }
    if (pipe == PIPE_ALL) {
        now.time.BarrierAll();
        now.clock.BarrierAll();
    } else {
        now.time.Barrier(static_cast<Pipe>(pipe));
        now.clock.Barrier(static_cast<Pipe>(pipe));
    }
}

}  // namespace ascend_sim
