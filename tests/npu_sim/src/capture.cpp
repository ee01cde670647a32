#include "capture.h"

#include <algorithm>
#include <set>
#include <utility>

#include "report.h"

namespace device_sim {
namespace {

std::vector<std::shared_ptr<Graph>>& graphs() {
    static auto* instance = new std::vector<std::shared_ptr<Graph>>;
    return *instance;
}

uint32_t next_graph_id = 1;
int32_t replay_order = ASCEND_DEVICE_SIM_REPLAY_AS_CAPTURED;
thread_local aclmdlRICaptureMode thread_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

aclError Break(Graph& graph, aclError code) {
    graph.broken = graph.broken == ACL_SUCCESS ? code : graph.broken;
    return code;
}

// Every node that must have run before one of `last`, those included.
std::set<size_t> Ancestors(const Graph& graph, std::vector<size_t> last) {
    std::set<size_t> seen;
    while (!last.empty()) {
        const size_t node = last.back();
        last.pop_back();
        if (seen.insert(node).second) {
            last.insert(last.end(), graph.nodes[node].behind.begin(), graph.nodes[node].behind.end());
        }
    }
    return seen;
}

bool AllJoined(const Graph& graph) {
    const std::set<size_t> joined = Ancestors(graph, graph.frontier.at(graph.origin));
    return std::all_of(graph.frontier.begin(), graph.frontier.end(), [&](const auto& entry) {
        return std::all_of(entry.second.begin(), entry.second.end(),
                           [&](size_t node) { return joined.contains(node); });
    });
}

// Any order in which every node comes after those it stands behind.
std::vector<size_t> ExecutionOrder(const Graph& graph, bool latest_first) {
    std::vector<size_t> order;
    std::vector<bool> done(graph.nodes.size(), false);
    while (order.size() < graph.nodes.size()) {
        for (size_t step = 0; step < graph.nodes.size(); ++step) {
            const size_t node = latest_first ? graph.nodes.size() - 1 - step : step;
            const auto& behind = graph.nodes[node].behind;
            if (!done[node] && std::all_of(behind.begin(), behind.end(), [&](size_t other) { return done[other]; })) {
                done[node] = true;
                order.push_back(node);
                break;
            }
        }
    }
    return order;
}

void AddAll(std::vector<size_t>* target, const std::vector<size_t>& nodes) {
    for (const size_t node : nodes) {
        if (std::find(target->begin(), target->end(), node) == target->end()) {
            target->push_back(node);
        }
    }
}

}  // namespace

aclError BeginCapture(const std::shared_ptr<Stream>& stream, aclmdlRICaptureMode mode) {
    if (stream->capture != nullptr) {
        return Fail(ACL_ERROR_RT_STREAM_CAPTURED, "aclmdlRICaptureBegin", "stream %d is captured already", stream->id);
    }
    auto graph = std::make_shared<Graph>();
    graph->id = next_graph_id++;
    graph->device = stream->device;
    graph->mode = mode;
    graph->thread = std::this_thread::get_id();
    graph->origin = stream;
    graph->frontier[stream] = {};
    stream->capture = graph;
    graphs().push_back(graph);
    return ACL_SUCCESS;
}

aclError EndCapture(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>* result) {
    const char* function = "aclmdlRICaptureEnd";
    const std::shared_ptr<Graph> graph = stream->capture;
    if (graph == nullptr) {
        return Fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, function, "stream %d is not captured", stream->id);
    }
    if (graph->origin != stream) {
        return Fail(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, function,
                    "the capture began on stream %d, ended on stream %d", graph->origin->id, stream->id);
    }
    if (graph->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && graph->thread != std::this_thread::get_id()) {
        return Fail(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, function, "another thread began the capture");
    }
    graph->capturing = false;
    const bool joined = AllJoined(*graph);
    for (const auto& [captured, behind] : graph->frontier) {
        captured->capture = nullptr;
    }
    graph->frontier.clear();
    graph->origin = nullptr;
    if (graph->broken != ACL_SUCCESS) {
        ForgetGraph(graph);
        return Fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, function, "error %d during the capture broke it",
                    graph->broken);
    }
    if (!joined) {
        ForgetGraph(graph);
        return Fail(ACL_ERROR_RT_STREAM_UNJOINED, function, "a stream that joined the capture was not waited for");
    }
    *result = graph;
    return ACL_SUCCESS;
}

std::shared_ptr<Graph> FindGraph(aclmdlRI handle) {
    for (const auto& graph : graphs()) {
        if (graph.get() == handle) {
            return graph;
        }
    }
    return nullptr;
}

void ForgetGraph(const std::shared_ptr<Graph>& graph) { std::erase(graphs(), graph); }

aclError Submit(Scheduler::Lock& lock, const char* function, const std::shared_ptr<Stream>& stream,
                std::shared_ptr<const Work> work) {
    const std::shared_ptr<Graph> graph = stream->capture;
    if (graph == nullptr) {
        Scheduler::Get().Enqueue(lock, stream, Task{std::move(work), nullptr, nullptr});
        return ACL_SUCCESS;
    }
    if (graph->broken != ACL_SUCCESS) {
        return Fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, function, "error %d broke the capture", graph->broken);
    }
    graph->nodes.push_back(Node{std::move(work), graph->frontier[stream]});
    graph->frontier[stream] = {graph->nodes.size() - 1};
    return ACL_SUCCESS;
}

aclError RecordEvent(Scheduler::Lock& lock, const std::shared_ptr<Stream>& stream, Event* event) {
    event->patience = 0;
    event->graph = stream->capture;
    if (stream->capture != nullptr) {
        event->mark = nullptr;
        event->nodes = stream->capture->frontier[stream];
        return ACL_SUCCESS;
    }
    event->nodes.clear();
    event->mark = Scheduler::Get().Record(lock, stream);
    return ACL_SUCCESS;
}

aclError WaitEvent(Scheduler::Lock& lock, const std::shared_ptr<Stream>& stream, Event* event) {
    const char* function = "aclrtStreamWaitEvent";
    const std::shared_ptr<Graph> graph = event->graph;
    if (graph == nullptr) {
        if (stream->capture != nullptr && event->mark != nullptr) {
            return Break(*stream->capture,
                         Fail(ACL_ERROR_RT_CAPTURE_DEPENDENCY, function,
                              "captured stream %d waits for an event from outside of its capture", stream->id));
        }
        if (event->mark != nullptr && !event->mark->done) {
            Scheduler::Get().Enqueue(lock, stream, Task{nullptr, nullptr, event->mark});
        }
        return ACL_SUCCESS;
    }
    if (!graph->capturing) {
        return Fail(ACL_ERROR_RT_EVENT_CAPTURED, function, "the event belongs to a capture that has ended");
    }
    if (stream->capture != nullptr && stream->capture != graph) {
        return Break(*stream->capture,
                     Fail(ACL_ERROR_STREAM_CAPTURE_CONFLICT, function, "the event belongs to another capture"));
    }
    if (stream->capture == nullptr) {
        stream->capture = graph;
        graph->frontier[stream] = {};
    }
    AddAll(&graph->frontier[stream], event->nodes);
    return ACL_SUCCESS;
}

aclError ForbidOnCapturedStream(const char* function, const Stream& stream, aclError code) {
    if (stream.capture == nullptr) {
        return ACL_SUCCESS;
    }
    return Break(*stream.capture, Fail(code, function, "stream %d is captured", stream.id));
}

aclError ForbidDuringCapture(const char* function) {
    if (thread_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return ACL_SUCCESS;
    }
    for (const auto& graph : graphs()) {
        const bool own = graph->thread == std::this_thread::get_id();
        const bool applies = graph->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL ||
                             (graph->mode == ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL && own);
        if (graph->capturing && applies) {
            return Break(*graph, Fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, function, "a capture is under way"));
        }
    }
    return ACL_SUCCESS;
}

aclError ForbidCapturedEvent(const char* function, const Event& event) {
    if (event.graph == nullptr) {
        return ACL_SUCCESS;
    }
    const aclError code = Fail(ACL_ERROR_RT_EVENT_CAPTURED, function, "the event was recorded in a capture");
    return event.graph->capturing ? Break(*event.graph, code) : code;
}

aclError Replay(Scheduler::Lock& lock, const std::shared_ptr<Graph>& graph, const std::shared_ptr<Stream>& stream) {
    const char* function = "aclmdlRIExecuteAsync";
    if (graph->capturing) {
        return Fail(ACL_ERROR_RT_MODEL_CAPTURED, function, "the graph is still captured");
    }
    if (graph->device != stream->device) {
        return Fail(ACL_ERROR_RT_MODEL_CONTEXT, function, "a graph of device %d on a stream of device %d",
                    graph->device, stream->device);
    }
    if (const aclError error = ForbidOnCapturedStream(function, *stream, ACL_ERROR_RT_STREAM_CAPTURED)) {
        return error;
    }
    Count("replay");
    ++graph->pending;
    auto order = ExecutionOrder(*graph, replay_order == ASCEND_DEVICE_SIM_REPLAY_LATEST_FIRST);
    auto work = std::make_shared<Work>();
    work->name = "graph replay";
    work->run = [graph, order = std::move(order)]() -> aclError {
        aclError first_error = ACL_SUCCESS;
        for (const size_t index : order) {
            const Work& node = *graph->nodes[index].work;
            if (const aclError error = node.run(); error != ACL_SUCCESS) {
                Fail(error, node.name.c_str(), "node %zu of a replay failed", index);
                first_error = first_error == ACL_SUCCESS ? error : first_error;
            }
        }
        std::lock_guard guard(Scheduler::Get().mutex);
        --graph->pending;
        return first_error;
    };
    Scheduler::Get().Enqueue(lock, stream, Task{std::move(work), nullptr, nullptr});
    return ACL_SUCCESS;
}

void SetReplayOrder(int32_t order) { replay_order = order; }

aclmdlRICaptureMode ExchangeThreadMode(aclmdlRICaptureMode mode) { return std::exchange(thread_mode, mode); }

}  // namespace device_sim
