#include "scheduler.h"

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "report.h"

namespace device_sim {
namespace {

thread_local int32_t running_device = -1;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int32_t ModeFromEnvironment() {
    const char* text = std::getenv("ASCEND_DEVICE_SIM_MODE");
    if (text != nullptr && strcmp(text, "asynchronous") == 0) {
        return ASCEND_DEVICE_SIM_ASYNCHRONOUS;
    }
    if (text != nullptr && strcmp(text, "synchronous") == 0) {
        return ASCEND_DEVICE_SIM_SYNCHRONOUS;
    }
    return ASCEND_DEVICE_SIM_LAZY;
}

}  // namespace

// Never destroyed: worker threads and torch_npu's own threads may still be in it when the process ends.
Scheduler& Scheduler::Get() {
    static auto* instance = new Scheduler;
    return *instance;
}

Scheduler::Scheduler() : mode_(ModeFromEnvironment()), default_streams_(kDevices) {}

std::shared_ptr<Stream> Scheduler::CreateStream(int32_t device) {
    auto stream = std::make_shared<Stream>();
    stream->device = device;
    stream->id = next_stream_id_++;
    streams_.insert(stream);
    return stream;
}

std::shared_ptr<Stream> Scheduler::Find(aclrtStream handle, int32_t current_device) {
    if (handle == nullptr) {
        if (current_device < 0) {
            return nullptr;
        }
        auto& stream = default_streams_[current_device];
        if (stream == nullptr) {
            stream = CreateStream(current_device);
        }
        return stream;
    }
    for (const auto& stream : streams_) {
        if (stream.get() == handle) {
            return stream;
        }
    }
    return nullptr;
}

aclError Scheduler::DestroyStream(Lock& lock, const std::shared_ptr<Stream>& stream) {
    RunUntil(lock, stream, stream->enqueued);
    stream->closing = true;
    streams_.erase(stream);
    progress_.notify_all();
    if (stream->worker.joinable()) {
        lock.unlock();
        stream->worker.join();
        lock.lock();
    }
    return ACL_SUCCESS;
}

std::vector<std::shared_ptr<Stream>> Scheduler::StreamsOf(int32_t device) const {
    std::vector<std::shared_ptr<Stream>> found;
    for (const auto& stream : streams_) {
        if (stream->device == device) {
            found.push_back(stream);
        }
    }
    return found;
}

Event* Scheduler::CreateEvent() { return *events_.insert(new Event).first; }

Event* Scheduler::FindEvent(aclrtEvent handle) {
    const auto entry = events_.find(static_cast<Event*>(handle));
    return entry == events_.end() ? nullptr : *entry;
}

void Scheduler::DestroyEvent(Event* event) {
    events_.erase(event);
    delete event;
}

bool Scheduler::Ready(const Stream& stream) const {
    return !stream.running && !stream.queue.empty() &&
           (stream.queue.front().wait == nullptr || stream.queue.front().wait->done);
}

void Scheduler::RunFront(Lock& lock, Stream& stream) {
    const Task task = stream.queue.front();
    if (task.work != nullptr) {
        stream.running = true;
        lock.unlock();
        running_device = stream.device;
        const aclError error = task.work->run();
        running_device = -1;
        lock.lock();
        stream.running = false;
        if (error != ACL_SUCCESS) {
            Fail(error, task.work->name.c_str(), "task of stream %d on device %d failed", stream.id, stream.device);
            stream.error = stream.error == ACL_SUCCESS ? error : stream.error;
        }
    } else if (task.record != nullptr) {
        task.record->done = true;
        task.record->seconds = Now();
    }
    stream.queue.pop_front();
    ++stream.completed;
    progress_.notify_all();
}

void Scheduler::RunUntil(Lock& lock, const std::shared_ptr<Stream>& stream, uint64_t tasks) {
    while (stream->completed < tasks) {
        if (mode_ == ASCEND_DEVICE_SIM_ASYNCHRONOUS || stream->running) {
            progress_.wait(lock);
        } else if (Ready(*stream)) {
            RunFront(lock, *stream);
        } else {
            const std::shared_ptr<Mark> mark = stream->queue.front().wait;
            RunUntil(lock, mark->stream, mark->position);
        }
    }
}

void Scheduler::RunAll(Lock& lock) {
    const auto everything = std::vector(streams_.begin(), streams_.end());
    for (const auto& stream : everything) {
        RunUntil(lock, stream, stream->enqueued);
    }
}

void Scheduler::SetMode(Lock& lock, int32_t mode) {
    RunAll(lock);
    mode_ = mode;
}

void Scheduler::WorkerLoop(const std::shared_ptr<Stream>& stream) {
    Lock lock(mutex);
    while (!stream->closing) {
        if (mode_ == ASCEND_DEVICE_SIM_ASYNCHRONOUS && Ready(*stream)) {
            RunFront(lock, *stream);
        } else {
            progress_.wait(lock);
        }
    }
}

void Scheduler::Enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, Task task) {
    stream->queue.push_back(std::move(task));
    ++stream->enqueued;
    if (mode_ == ASCEND_DEVICE_SIM_SYNCHRONOUS) {
        RunUntil(lock, stream, stream->enqueued);
    } else if (mode_ == ASCEND_DEVICE_SIM_ASYNCHRONOUS) {
        if (!stream->worker.joinable()) {
            stream->worker = std::thread([this, stream] { WorkerLoop(stream); });
        }
        progress_.notify_all();
    }
}

std::shared_ptr<Mark> Scheduler::Record(Lock& lock, const std::shared_ptr<Stream>& stream) {
    auto mark = std::make_shared<Mark>();
    mark->stream = stream;
    mark->position = stream->enqueued + 1;
    Enqueue(lock, stream, Task{nullptr, mark, nullptr});
    return mark;
}

void Scheduler::ForgetErrors() {
    for (const auto& stream : streams_) {
        stream->error = ACL_SUCCESS;
    }
}

}  // namespace device_sim

extern "C" int32_t ascend_device_sim_running_device() { return device_sim::running_device; }
