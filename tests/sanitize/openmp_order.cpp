// Tells ThreadSanitizer what OpenMP's runtime orders. The runtime is not instrumented, so that the start of a parallel
// loop and its end would look like races of every loop with the code before and behind it. Loaded before the runtime.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

namespace {

using Body = void (*)(void*);
using Parallel = void (*)(Body, void*, unsigned, unsigned);

// One parallel region. Its address stands for its start, that of `ended` for its end.
struct Region {
    Body body;
    void* data;
    char ended;
};

void run_ordered(void* at) {
    Region* region = static_cast<Region*>(at);
    __tsan_acquire(region);
    region->body(region->data);
    __tsan_release(&region->ended);
}

Parallel runtime() {
    static const Parallel found = reinterpret_cast<Parallel>(dlsym(RTLD_NEXT, "GOMP_parallel"));
    if (found == nullptr) {
        std::fputs("openmp_order: no OpenMP runtime is loaded, expected that of torch\n", stderr);
        std::abort();
    }
    return found;
}

}  // namespace

extern "C" void GOMP_parallel(Body body, void* data, unsigned num_threads, unsigned flags) {
    Region region{body, data, 0};
    __tsan_release(&region);
    runtime()(&run_ordered, &region, num_threads, flags);
    __tsan_acquire(&region.ended);
}
