// The one built-in operator that the simulated device has: torch_npu up to 2.10 fills the seed and the offset of its
// random generator, a tensor of one int64 each, before it captures a graph. Any other fill fails, as every built-in
// operator does, so that an op of this project that fills a tensor on the device is still noticed.
#include <acl/acl.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>

#include "ascend_device_sim.h"
#include "capture.h"
#include "context.h"
#include "memory.h"
#include "report.h"

using namespace device_sim;

// No header of the wheel declares these three nor the functions below; torch_npu looks the functions up by name.
struct aclTensor {
    aclDataType type;
    int64_t elems;
    const int64_t* address;  // of the first element, on the device
};

struct aclScalar {
    aclDataType type;
    int64_t value;  // unread unless the type is int64
};

// A fill whose arguments were accepted.
struct aclOpExecutor {
    const int64_t* target;
    int64_t value;
};

extern "C" {

// The offset counts elements; strides say nothing about a single one.
aclTensor* aclCreateTensor(const int64_t* sizes, uint64_t dims, aclDataType type, const int64_t*, int64_t offset_elems,
                           aclFormat, const int64_t*, uint64_t, void* storage) {
    const int64_t elems = std::accumulate(sizes, sizes + dims, int64_t{1}, std::multiplies<>());
    const auto* address = type == ACL_INT64 ? static_cast<const int64_t*>(storage) + offset_elems : nullptr;
    return new aclTensor{type, elems, address};
}

int32_t aclDestroyTensor(const aclTensor* tensor) {
    delete tensor;
    return ACL_SUCCESS;
}

aclScalar* aclCreateScalar(const void* value, aclDataType type) {
    return new aclScalar{type, type == ACL_INT64 ? *static_cast<const int64_t*>(value) : 0};
}

int32_t aclDestroyScalar(const aclScalar* scalar) {
    delete scalar;
    return ACL_SUCCESS;
}

int32_t aclnnInplaceFillScalarGetWorkspaceSize(const aclTensor* tensor, const aclScalar* scalar,
                                               uint64_t* workspace_bytes, aclOpExecutor** executor) {
    if (tensor->type != ACL_INT64 || tensor->elems != 1 || scalar->type != ACL_INT64) {
        return ascend_device_sim_builtin_operator("aclnnInplaceFillScalar");
    }
    Count("operator.aclnnInplaceFillScalar");
    *workspace_bytes = 0;
    *executor = new aclOpExecutor{tensor->address, scalar->value};
    return ACL_SUCCESS;
}

int32_t aclnnInplaceFillScalar(void*, uint64_t, aclOpExecutor* executor, aclrtStream handle) {
    const char* function = "aclnnInplaceFillScalar";
    const aclOpExecutor fill = *executor;
    delete executor;
    Scheduler::Lock lock(Scheduler::Get().mutex);
    std::shared_ptr<Stream> stream;
    if (const aclError error = StreamForWork(function, handle, &stream)) {
        return error;
    }
    auto work = std::make_shared<Work>();
    work->name = function;
    work->run = [fill, function, device = stream->device]() -> aclError {
        uint8_t* target = Alias(function, fill.target, sizeof fill.value, device);
        if (target == nullptr) {
            return ACL_ERROR_RT_PARAM_INVALID;
        }
        memcpy(target, &fill.value, sizeof fill.value);
        return ACL_SUCCESS;
    };
    return Submit(lock, function, stream, std::move(work));
}

}  // extern "C"
