// Lets torch_npu 2.14 be loaded beside a CUDA build of torch, the only kind that the package index has for x86_64.
//
// torch keeps the names of the settings of its devices' allocators, and a name that is said twice ends the process: both
// torch's part for CUDA and torch_npu say these two. There is no CUDA device here, so CUDA's are forgotten.
#include <c10/core/AllocatorConfig.h>

[[maybe_unused]] static const bool forgotten = [] {
    auto& names = c10::CachingAllocator::AcceleratorAllocatorConfig::getMutableKeys();
    names.erase("per_process_memory_fraction");
    names.erase("pinned_reserve_segment_size_mb");
    return true;
}();
