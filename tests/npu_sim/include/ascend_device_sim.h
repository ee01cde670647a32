// C API of the simulated Ascend device: what kernel launch stubs and tests call. torch_npu never sees it.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// One live allocation of device memory.
struct AscendDeviceSimRange {
    uint64_t device_base;  // first device address; the host cannot read it
    uint64_t bytes;        // as asked from aclrtMalloc
    uint8_t* host_base;    // the same bytes, readable and writable by simulated kernels
    int32_t device;        // index of the device that owns the memory
};

// Finds the allocation that holds `device_address`. Returns 0, or an ACL error that is also recorded: not device
// memory, freed, or (inside a running task) memory of another device than the task's.
int32_t ascend_device_sim_resolve(const void* device_address, struct AscendDeviceSimRange* range);

// The readable address of a device address, nullptr where ascend_device_sim_resolve fails.
void* ascend_device_sim_host_alias(const void* device_address);

// Tells a kernel simulator about device memory: `allocated` at once for all live allocations and then for each new one,
// `freed` before each is freed. Called with the memory locked: they must not call this API. Null pointers end it.
typedef void (*AscendDeviceSimMemoryHook)(const struct AscendDeviceSimRange* range);
void ascend_device_sim_set_memory_hooks(AscendDeviceSimMemoryHook allocated, AscendDeviceSimMemoryHook freed);

// Puts one launch on a stream, or into the graph that the stream is captured into.
// `run(context)` is called once an execution (a captured launch: once a replay) and returns 0 or an ACL error, which
// the stream reports at the next synchronisation. `destroy(context)` is called once, after the last run, also when the
// launch is refused. Returns 0 or the ACL error of the refusal.
int32_t ascend_device_sim_enqueue(void* stream, const char* kernel, uint32_t (*run)(void* context),
                                  void (*destroy)(void* context), void* context);

// Device of the task that the calling thread runs, -1 outside of tasks.
int32_t ascend_device_sim_running_device(void);

// When tasks run. Lazy: nothing runs before a host call has to wait for it, and then only what that call needs.
// Asynchronous: a thread for each stream. Synchronous: before the call that enqueued the task returns.
enum AscendDeviceSimMode {
    ASCEND_DEVICE_SIM_LAZY = 0,
    ASCEND_DEVICE_SIM_ASYNCHRONOUS = 1,
    ASCEND_DEVICE_SIM_SYNCHRONOUS = 2,
};

// Runs everything that is pending in the old mode, then switches. Returns 0 or an ACL error.
int32_t ascend_device_sim_set_mode(int32_t mode);
int32_t ascend_device_sim_mode(void);

// Order in which a replay runs nodes that no edge orders: as captured, or the latest captured first.
enum AscendDeviceSimReplayOrder {
    ASCEND_DEVICE_SIM_REPLAY_AS_CAPTURED = 0,
    ASCEND_DEVICE_SIM_REPLAY_LATEST_FIRST = 1,
};
int32_t ascend_device_sim_set_replay_order(int32_t order);

// Makes the next `count` launches whose kernel name is `kernel` return `error` ("" stands for every kernel).
void ascend_device_sim_fail_launches(const char* kernel, int32_t error, uint32_t count);

// Text, one `name<TAB>value` a line, valid until the calling thread asks again.
const char* ascend_device_sim_counters(void);
// Text, one recorded error a line, valid until the calling thread asks again.
const char* ascend_device_sim_errors(void);
void ascend_device_sim_reset_counters(void);
// Forgets recorded errors and the error state of every stream.
void ascend_device_sim_reset_errors(void);

// Counts a built-in operator that the device does not have and returns the ACL error with which it fails.
int32_t ascend_device_sim_builtin_operator(const char* name);

#ifdef __cplusplus
}
#endif
