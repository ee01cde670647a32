// ACL: streams, events, synchronisation.
#include <acl/acl.h>

#include "capture.h"
#include "context.h"
#include "report.h"

namespace device_sim {

aclError StreamForHost(const char* function, aclrtStream handle, std::shared_ptr<Stream>* stream) {
    *stream = Scheduler::Get().Find(handle, CurrentDevice());
    return *stream != nullptr ? ACL_SUCCESS
                              : Fail(ACL_ERROR_RT_INVALID_HANDLE, function, "%p is not a live stream", handle);
}

aclError StreamForWork(const char* function, aclrtStream handle, std::shared_ptr<Stream>* stream) {
    if (const aclError error = StreamForHost(function, handle, stream)) {
        return error;
    }
    if ((*stream)->device != CurrentDevice()) {
        return Fail(ACL_ERROR_RT_STREAM_CONTEXT, function, "stream of device %d, current device %d", (*stream)->device,
                    CurrentDevice());
    }
    return ACL_SUCCESS;
}

aclError EventForHandle(const char* function, aclrtEvent handle, Event** event) {
    *event = Scheduler::Get().FindEvent(handle);
    return *event != nullptr ? ACL_SUCCESS
                             : Fail(ACL_ERROR_RT_INVALID_HANDLE, function, "%p is not a live event", handle);
}

namespace {

// A loop that only asks would never end in lazy mode; a real device finishes some time.
constexpr uint32_t kPatience = 1000;

aclError CreateStream(const char* function, aclrtStream* handle) {
    if (CurrentDevice() < 0) {
        return Fail(ACL_ERROR_RT_CONTEXT_NULL, function, "no device is set");
    }
    Scheduler::Lock lock(Scheduler::Get().mutex);
    *handle = Scheduler::Get().CreateStream(CurrentDevice()).get();
    return ACL_SUCCESS;
}

aclError StreamResult(const char* function, const Stream& stream) {
    return stream.error == ACL_SUCCESS
               ? ACL_SUCCESS
               : Fail(stream.error, function, "an earlier task of stream %d on device %d failed", stream.id,
                      stream.device);
}

aclError SynchronizeStream(const char* function, aclrtStream handle) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForHost(function, handle, &stream)) {
        return error;
    }
    Count("sync.stream");
    if (const aclError error = ForbidOnCapturedStream(function, *stream, ACL_ERROR_RT_STREAM_CAPTURED)) {
        return error;
    }
    Scheduler::Get().RunUntil(lock, stream, stream->enqueued);
    return StreamResult(function, *stream);
}

aclError SynchronizeDevice(const char* function) {
    if (CurrentDevice() < 0) {
        return Fail(ACL_ERROR_RT_CONTEXT_NULL, function, "no device is set");
    }
    Count("sync.device");
    Scheduler::Lock lock(Scheduler::Get().mutex);
    if (const aclError error = ForbidDuringCapture(function)) {
        return error;
    }
    aclError first_error = ACL_SUCCESS;
    for (const auto& stream : Scheduler::Get().StreamsOf(CurrentDevice())) {
        Scheduler::Get().RunUntil(lock, stream, stream->enqueued);
        const aclError error = StreamResult(function, *stream);
        first_error = first_error == ACL_SUCCESS ? error : first_error;
    }
    return first_error;
}

aclError DestroyStream(const char* function, aclrtStream handle) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForHost(function, handle, &stream)) {
        return error;
    }
    return Scheduler::Get().DestroyStream(lock, stream);
}

aclError CreateEvent(aclrtEvent* event) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    *event = Scheduler::Get().CreateEvent();
    return ACL_SUCCESS;
}

}  // namespace
}  // namespace device_sim

using namespace device_sim;

extern "C" {

aclError aclrtCreateStream(aclrtStream* stream) { return CreateStream("aclrtCreateStream", stream); }

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
    return CreateStream("aclrtCreateStreamWithConfig", stream);
}

aclError aclrtDestroyStream(aclrtStream stream) { return DestroyStream("aclrtDestroyStream", stream); }
aclError aclrtDestroyStreamForce(aclrtStream stream) { return DestroyStream("aclrtDestroyStreamForce", stream); }

aclError aclrtSynchronizeStream(aclrtStream stream) { return SynchronizeStream("aclrtSynchronizeStream", stream); }

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t) {
    return SynchronizeStream("aclrtSynchronizeStreamWithTimeout", stream);
}

aclError aclrtSynchronizeDevice() { return SynchronizeDevice("aclrtSynchronizeDevice"); }
aclError aclrtSynchronizeDeviceWithTimeout(int32_t) { return SynchronizeDevice("aclrtSynchronizeDeviceWithTimeout"); }

aclError aclrtStreamQuery(aclrtStream handle, aclrtStreamStatus* status) {
    const char* function = "aclrtStreamQuery";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForHost(function, handle, &stream)) {
        return error;
    }
    Count("query.stream");
    if (const aclError error = ForbidOnCapturedStream(function, *stream, ACL_ERROR_RT_STREAM_CAPTURED)) {
        return error;
    }
    if (stream->completed != stream->enqueued && ++stream->patience >= kPatience) {
        Scheduler::Get().RunUntil(lock, stream, stream->enqueued);
    }
    const bool complete = stream->completed == stream->enqueued;
    stream->patience = complete ? 0 : stream->patience;
    *status = complete ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return ACL_SUCCESS;
}

aclError aclrtStreamGetId(aclrtStream handle, int32_t* id) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForHost("aclrtStreamGetId", handle, &stream)) {
        return error;
    }
    *id = stream->id;
    return ACL_SUCCESS;
}

// Priorities, tags and failure modes change nothing here.
aclError aclrtSetStreamAttribute(aclrtStream handle, aclrtStreamAttr, aclrtStreamAttrValue*) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    return StreamForHost("aclrtSetStreamAttribute", handle, &stream);
}

aclError aclrtSetStreamFailureMode(aclrtStream handle, uint64_t) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    return StreamForHost("aclrtSetStreamFailureMode", handle, &stream);
}

// Older kinds of NPU than 910B are asked for it.
aclError aclrtSetStreamOverflowSwitch(aclrtStream handle, uint32_t) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    return StreamForHost("aclrtSetStreamOverflowSwitch", handle, &stream);
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) { return CreateEvent(event); }
aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t) { return CreateEvent(event); }

aclError aclrtDestroyEvent(aclrtEvent handle) {
    Scheduler::Lock lock(Scheduler::Get().mutex);
    Event* event = nullptr;
    if (const aclError error = EventForHandle("aclrtDestroyEvent", handle, &event)) {
        return error;
    }
    Scheduler::Get().DestroyEvent(event);
    return ACL_SUCCESS;
}

aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream_handle) {
    const char* function = "aclrtRecordEvent";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    Event* event = nullptr;
    if (const aclError error = StreamForWork(function, stream_handle, &stream)) {
        return error;
    }
    if (const aclError error = EventForHandle(function, handle, &event)) {
        return error;
    }
    Count("event.record");
    return RecordEvent(lock, stream, event);
}

aclError aclrtStreamWaitEvent(aclrtStream stream_handle, aclrtEvent handle) {
    const char* function = "aclrtStreamWaitEvent";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    Event* event = nullptr;
    if (const aclError error = StreamForWork(function, stream_handle, &stream)) {
        return error;
    }
    if (const aclError error = EventForHandle(function, handle, &event)) {
        return error;
    }
    Count("event.wait");
    return WaitEvent(lock, stream, event);
}

aclError aclrtSynchronizeEvent(aclrtEvent handle) {
    const char* function = "aclrtSynchronizeEvent";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    Event* event = nullptr;
    if (const aclError error = EventForHandle(function, handle, &event)) {
        return error;
    }
    Count("sync.event");
    if (const aclError error = ForbidCapturedEvent(function, *event)) {
        return error;
    }
    const std::shared_ptr<Mark> mark = event->mark;
    if (mark == nullptr) {
        return ACL_SUCCESS;
    }
    Scheduler::Get().RunUntil(lock, mark->stream, mark->position);
    return StreamResult(function, *mark->stream);
}

aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus* status) {
    const char* function = "aclrtQueryEventStatus";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    Event* event = nullptr;
    if (const aclError error = EventForHandle(function, handle, &event)) {
        return error;
    }
    Count("query.event");
    if (const aclError error = ForbidCapturedEvent(function, *event)) {
        return error;
    }
    const std::shared_ptr<Mark> mark = event->mark;
    if (mark != nullptr && !mark->done && ++event->patience >= kPatience) {
        Scheduler::Get().RunUntil(lock, mark->stream, mark->position);
    }
    *status = mark == nullptr || mark->done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return ACL_SUCCESS;
}

aclError aclrtEventElapsedTime(float* milliseconds, aclrtEvent start_handle, aclrtEvent end_handle) {
    const char* function = "aclrtEventElapsedTime";
    Scheduler::Lock lock(Scheduler::Get().mutex);
    Event* start = nullptr;
    Event* end = nullptr;
    if (const aclError error = EventForHandle(function, start_handle, &start)) {
        return error;
    }
    if (const aclError error = EventForHandle(function, end_handle, &end)) {
        return error;
    }
    if (start->mark == nullptr || end->mark == nullptr || !start->mark->done || !end->mark->done) {
        return Fail(ACL_ERROR_RT_EVENT_NOT_COMPLETE, function, "an event is not recorded or not complete");
    }
    *milliseconds = static_cast<float>((end->mark->seconds - start->mark->seconds) * 1e3);
    return ACL_SUCCESS;
}

}  // extern "C"
