// Graphs: what streams record while they are captured, and their replay. Guarded by Scheduler::mutex.
#pragma once

#include <acl/acl.h>

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "scheduler.h"

namespace device_sim {

struct Node {
    std::shared_ptr<const Work> work;
    std::vector<size_t> behind;  // nodes that must have run before, all of smaller index
};

struct Graph {
    uint32_t id = 0;
    int32_t device = 0;
    aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;  // that began the capture
    std::shared_ptr<Stream> origin;
    std::vector<Node> nodes;
    // What the next node of each captured stream stands behind.
    std::map<std::shared_ptr<Stream>, std::vector<size_t>> frontier;
    aclError broken = ACL_SUCCESS;  // first misuse; the capture then ends with an error
    bool capturing = true;
    uint32_t pending = 0;  // replays that have not run yet
};

aclError BeginCapture(const std::shared_ptr<Stream>& stream, aclmdlRICaptureMode mode);
aclError EndCapture(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>* graph);
std::shared_ptr<Graph> FindGraph(aclmdlRI handle);
void ForgetGraph(const std::shared_ptr<Graph>& graph);

// Puts work on the stream, or into its graph when it is captured.
aclError Submit(Scheduler::Lock& lock, const char* function, const std::shared_ptr<Stream>& stream,
                std::shared_ptr<const Work> work);
aclError RecordEvent(Scheduler::Lock& lock, const std::shared_ptr<Stream>& stream, Event* event);
aclError WaitEvent(Scheduler::Lock& lock, const std::shared_ptr<Stream>& stream, Event* event);

// Errors of calls that a capture forbids; they also break the capture.
aclError ForbidOnCapturedStream(const char* function, const Stream& stream, aclError code);
aclError ForbidDuringCapture(const char* function);
aclError ForbidCapturedEvent(const char* function, const Event& event);

aclError Replay(Scheduler::Lock& lock, const std::shared_ptr<Graph>& graph, const std::shared_ptr<Stream>& stream);
void SetReplayOrder(int32_t order);
aclmdlRICaptureMode ExchangeThreadMode(aclmdlRICaptureMode mode);

}  // namespace device_sim
