// ACL: capture and replay of graphs (aclmdlRI).
#include <acl/acl.h>

#include "capture.h"
#include "context.h"
#include "report.h"

using namespace device_sim;

namespace {

aclError GraphForHandle(const char* function, aclmdlRI handle, std::shared_ptr<Graph>* graph) {
    *graph = FindGraph(handle);
    return *graph != nullptr ? ACL_SUCCESS : Fail(ACL_ERROR_RT_INVALID_HANDLE, function, "%p is not a graph", handle);
}

}  // namespace

extern "C" {

aclError aclmdlRICaptureBegin(aclrtStream handle, aclmdlRICaptureMode mode) {
    const char* function = "aclmdlRICaptureBegin";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    if (handle == nullptr) {
        return Fail(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, function, "the default stream cannot be captured");
    }
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForWork(function, handle, &stream)) {
        return error;
    }
    Count("capture");
    return BeginCapture(stream, mode);
}

aclError aclmdlRICaptureGetInfo(aclrtStream handle, aclmdlRICaptureStatus* status, aclmdlRI* model) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForHost("aclmdlRICaptureGetInfo", handle, &stream)) {
        return error;
    }
    const std::shared_ptr<Graph>& graph = stream->capture;
    *model = graph.get();
    *status = graph == nullptr               ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
              : graph->broken == ACL_SUCCESS ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE
                                             : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
    return ACL_SUCCESS;
}

aclError aclmdlRICaptureEnd(aclrtStream handle, aclmdlRI* model) {
    *model = nullptr;
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForHost("aclmdlRICaptureEnd", handle, &stream)) {
        return error;
    }
    std::shared_ptr<Graph> graph;
    if (const aclError error = EndCapture(stream, &graph)) {
        return error;
    }
    *model = graph.get();
    return ACL_SUCCESS;
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    *mode = ExchangeThreadMode(*mode);
    return ACL_SUCCESS;
}

aclError aclmdlRIGetId(aclmdlRI model, uint32_t* id) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Graph> graph;
    if (const aclError error = GraphForHandle("aclmdlRIGetId", model, &graph)) {
        return error;
    }
    *id = graph->id;
    return ACL_SUCCESS;
}

aclError aclmdlRIExecuteAsync(aclmdlRI model, aclrtStream handle) {
    const char* function = "aclmdlRIExecuteAsync";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Graph> graph;
    std::shared_ptr<Stream> stream;
    if (const aclError error = GraphForHandle(function, model, &graph)) {
        return error;
    }
    if (const aclError error = StreamForWork(function, handle, &stream)) {
        return error;
    }
    return Replay(lock, graph, stream);
}

aclError aclmdlRIDestroy(aclmdlRI model) {
    const char* function = "aclmdlRIDestroy";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Graph> graph;
    if (const aclError error = GraphForHandle(function, model, &graph)) {
        return error;
    }
    if (graph->pending != 0) {
        return Fail(ACL_ERROR_RT_MODEL_RUNNING, function, "%u replays have not run", graph->pending);
    }
    ForgetGraph(graph);
    return ACL_SUCCESS;
}

}  // extern "C"
