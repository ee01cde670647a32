// ACL: built-in operators that the device does not have. Their descriptions can be built, as torch_npu does before it
// knows; executing one fails.
#include <acl/acl.h>
#include <acl/acl_op_compiler.h>

#include <string>
#include <vector>

#include "ascend_device_sim.h"
#include "report.h"

using namespace device_sim;

struct aclTensorDesc {
    aclDataType type;
    aclFormat format;
    std::vector<int64_t> sizes;
    std::string name;
};

struct aclDataBuffer {
    void* data;
    size_t bytes;
};

struct aclopAttr {};

extern "C" {

int32_t ascend_device_sim_builtin_operator(const char* name) {
    Count(std::string("operator.") + name);
    return Fail(ACL_ERROR_KERNEL_NOT_FOUND, name, "the simulated device does not have this built-in operator");
}

aclError aclopCompileAndExecute(const char* name, int, const aclTensorDesc* const[], const aclDataBuffer* const[], int,
                                const aclTensorDesc* const[], aclDataBuffer* const[], const aclopAttr*, aclopEngineType,
                                aclopCompileType, const char*, aclrtStream) {
    return ascend_device_sim_builtin_operator(name);
}

aclTensorDesc* aclCreateTensorDesc(aclDataType type, int count, const int64_t* sizes, aclFormat format) {
    return new aclTensorDesc{type, format, std::vector<int64_t>(sizes, sizes + count), ""};
}

void aclDestroyTensorDesc(const aclTensorDesc* tensor) { delete tensor; }
aclDataType aclGetTensorDescType(const aclTensorDesc* tensor) { return tensor->type; }
aclFormat aclGetTensorDescFormat(const aclTensorDesc* tensor) { return tensor->format; }
size_t aclGetTensorDescNumDims(const aclTensorDesc* tensor) { return tensor->sizes.size(); }
void aclSetTensorDescName(aclTensorDesc* tensor, const char* name) { tensor->name = name; }

aclError aclGetTensorDescDimV2(const aclTensorDesc* tensor, size_t index, int64_t* size) {
    if (index >= tensor->sizes.size()) {
        return Fail(ACL_ERROR_INVALID_PARAM, "aclGetTensorDescDimV2", "dimension %zu of %zu", index,
                    tensor->sizes.size());
    }
    *size = tensor->sizes[index];
    return ACL_SUCCESS;
}

aclError aclSetTensorFormat(aclTensorDesc* tensor, aclFormat format) {
    tensor->format = format;
    return ACL_SUCCESS;
}

aclError aclSetTensorShape(aclTensorDesc* tensor, int count, const int64_t* sizes) {
    tensor->sizes.assign(sizes, sizes + count);
    return ACL_SUCCESS;
}

aclError aclSetTensorPlaceMent(aclTensorDesc*, aclMemType) { return ACL_SUCCESS; }

aclDataBuffer* aclCreateDataBuffer(void* data, size_t bytes) { return new aclDataBuffer{data, bytes}; }

aclError aclDestroyDataBuffer(const aclDataBuffer* buffer) {
    delete buffer;
    return ACL_SUCCESS;
}

// Attributes matter to the execution only, which fails.
aclopAttr* aclopCreateAttr() { return new aclopAttr; }
void aclopDestroyAttr(const aclopAttr* attribute) { delete attribute; }
aclError aclopSetAttrBool(aclopAttr*, const char*, uint8_t) { return ACL_SUCCESS; }
aclError aclopSetAttrInt(aclopAttr*, const char*, int64_t) { return ACL_SUCCESS; }
aclError aclopSetAttrFloat(aclopAttr*, const char*, float) { return ACL_SUCCESS; }
aclError aclopSetAttrString(aclopAttr*, const char*, const char*) { return ACL_SUCCESS; }
aclError aclopSetAttrDataType(aclopAttr*, const char*, aclDataType) { return ACL_SUCCESS; }
aclError aclopSetAttrListBool(aclopAttr*, const char*, int, const uint8_t*) { return ACL_SUCCESS; }
aclError aclopSetAttrListInt(aclopAttr*, const char*, int, const int64_t*) { return ACL_SUCCESS; }
aclError aclopSetAttrListFloat(aclopAttr*, const char*, int, const float*) { return ACL_SUCCESS; }
aclError aclopSetAttrListListInt(aclopAttr*, const char*, int, const int*, const int64_t* const[]) {
    return ACL_SUCCESS;
}

}  // extern "C"
