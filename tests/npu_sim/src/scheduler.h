// Streams, events and when their tasks run. Every field below is guarded by Scheduler::mutex; tasks run without it.
#pragma once

#include <acl/acl.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ascend_device_sim.h"
#include "memory.h"

namespace device_sim {

struct Graph;
struct Stream;

// What a stream executes. Shared, because a captured one is executed by every replay.
struct Work {
    std::string name;
    std::function<aclError()> run;
};

// One recording of an event: done once the recording stream has run everything in front of it.
struct Mark {
    std::shared_ptr<Stream> stream;
    uint64_t position = 0;  // tasks of the stream that must have completed
    bool done = false;
    double seconds = 0;  // host clock when done
};

// Exactly one of the three is set.
struct Task {
    std::shared_ptr<const Work> work;
    std::shared_ptr<Mark> record;
    std::shared_ptr<Mark> wait;
};

struct Stream {
    int32_t device = 0;
    int32_t id = 0;
    std::deque<Task> queue;
    uint64_t enqueued = 0;   // tasks ever put on the stream
    uint64_t completed = 0;  // tasks ever taken off
    bool running = false;    // a thread executes the front task
    bool closing = false;
    uint32_t patience = 0;         // queries since it last ran dry
    aclError error = ACL_SUCCESS;  // first failure of a task; stays until errors are reset
    std::shared_ptr<Graph> capture;
    std::thread worker;  // asynchronous mode only
};

struct Event {
    std::shared_ptr<Mark> mark;    // latest recording on a stream that was not captured
    std::shared_ptr<Graph> graph;  // set when the latest recording went into a graph
    std::vector<size_t> nodes;     // of that graph: what the recording stands behind
    uint32_t patience = 0;         // queries of an unfinished mark so far
};

class Scheduler {
  public:
    using Lock = std::unique_lock<std::mutex>;

    static Scheduler& Get();

    std::mutex mutex;

    std::shared_ptr<Stream> CreateStream(int32_t device);
    // nullptr stands for the device's default stream. Returns nullptr for a handle that is unknown or destroyed.
    std::shared_ptr<Stream> Find(aclrtStream handle, int32_t current_device);
    aclError DestroyStream(Lock& lock, const std::shared_ptr<Stream>& stream);
    std::vector<std::shared_ptr<Stream>> StreamsOf(int32_t device) const;

    Event* CreateEvent();
    Event* FindEvent(aclrtEvent handle);
    void DestroyEvent(Event* event);

    // In synchronous mode returns once the task has run.
    void Enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, Task task);
    std::shared_ptr<Mark> Record(Lock& lock, const std::shared_ptr<Stream>& stream);
    // Returns once `tasks` tasks of the stream, and everything that they wait for, have run.
    void RunUntil(Lock& lock, const std::shared_ptr<Stream>& stream, uint64_t tasks);
    void RunAll(Lock& lock);

    int32_t mode() const { return mode_; }
    void SetMode(Lock& lock, int32_t mode);
    void ForgetErrors();

  private:
    Scheduler();
    void RunFront(Lock& lock, Stream& stream);
    void WorkerLoop(const std::shared_ptr<Stream>& stream);
    bool Ready(const Stream& stream) const;

    int32_t mode_;
    int32_t next_stream_id_ = 0;
    std::condition_variable progress_;
    std::set<std::shared_ptr<Stream>> streams_;
    std::set<Event*> events_;
    std::vector<std::shared_ptr<Stream>> default_streams_;  // of each device, created when first asked for
};

}  // namespace device_sim
