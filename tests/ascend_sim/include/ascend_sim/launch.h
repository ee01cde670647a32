// What a generated launch stub calls, and the hook through which a stream can delay launches.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Runs `body(args)` once per block in the simulator. `args` (args_bytes) is copied first, so a launch may be delayed
// and repeated. Returns 0, or 1 when the simulator reported an error (always 0 when a launcher has taken the launch).
uint32_t ascend_sim_launch(const char* kernel, uint32_t block_dim, void* stream, void (*body)(const void* args),
                           const void* args, size_t args_bytes);

// A launcher gets every launch instead of it running at once: it may call run(task) later, any number of times, and
// calls destroy(task) once when done. Pass a null pointer to run launches at once again.
typedef uint32_t (*ascend_sim_run_t)(void* task);
typedef void (*ascend_sim_destroy_t)(void* task);
typedef void (*ascend_sim_launcher_t)(ascend_sim_run_t run, ascend_sim_destroy_t destroy, void* task, void* stream);
void ascend_sim_set_launcher(ascend_sim_launcher_t launcher);

}  // extern "C"
