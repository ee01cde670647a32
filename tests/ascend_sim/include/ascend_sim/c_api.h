// Control of the simulator from tests (ctypes) and from an ACL stand-in. Strings stay valid until the next call that
// returns the same string.
#pragma once

#include <cstdint>

#include "ascend_sim/launch.h"

extern "C" {

// Global memory that kernels may touch; anything else is an error. `name` appears in messages. When `initialised` is
// 0, bytes count as unwritten until a kernel writes them, and a launch that is given the address and writes none of them
// makes an error. A new allocation replaces those that it overlaps.
void ascend_sim_register_gm(void* host, uint64_t bytes, const char* name, int32_t initialised);
// The same for memory that kernels know by another address than the host's (`device_address`).
void ascend_sim_register_gm_mapped(uint64_t device_address, void* host, uint64_t bytes, const char* name,
                                   int32_t initialised);
// Returns 1 when the allocation was known.
int32_t ascend_sim_unregister_gm(const void* address);
void ascend_sim_clear_gm(void);

// Random block order and poison follow the seed. order: 0 random, 1 ascending, 2 descending.
void ascend_sim_set_seed(uint64_t seed);
void ascend_sim_set_block_order(int32_t order);
// 1 (default): every edge between pipes must be explicit. 0: as if bisheng's auto-sync inserted the V-V and S edges.
void ascend_sim_set_strict(int32_t strict);
// 0 (default): strict, the kernel has to say everything itself. 1: as CANN's projects build it for Atlas A2 and A3:
// automatic synchronisation on, scalar stores to global memory written back at the kernel's end, integers that wrap,
// infinities and NaNs kept, empty vector instructions that do nothing. Sets the switches above and below.
void ascend_sim_set_profile(int32_t as_built);
// What TILING_KEY_IS compares with, in the launches that follow.
void ascend_sim_set_tiling_key(uint64_t key);
void ascend_sim_allow_scalar_gm_stores(int32_t allow);
void ascend_sim_report_overflow(int32_t report);
void ascend_sim_report_special_half(int32_t report);
// The time model: what kernels read and write comes from HBM, not from L2; and the instructions of the basic blocks at
// base + offset, by which it counts the kernels' own code (instructions.py).
void ascend_sim_set_memory_cold(int32_t cold);
void ascend_sim_set_instruction_table(const void* base, const uint64_t* offsets, const uint32_t* instructions,
                                      uint64_t count);
// Counters then say how many cycles the scalar unit is at each basic block of the table, by its offset.
void ascend_sim_keep_code_times(int32_t keep);
void ascend_sim_set_max_errors(uint64_t max_errors);
void ascend_sim_set_max_calls(uint64_t max_calls);

// Errors since the last clear: how many, and a JSON list of {kind, kernel, block, call, file, line, pipe, count,
// chain, message}.
uint64_t ascend_sim_error_count(void);
const char* ascend_sim_errors_json(void);
// The same of warnings, which leave a launch's status alone.
const char* ascend_sim_warnings_json(void);
// Both.
void ascend_sim_clear_errors(void);
// Leaves out findings of a kind ("order.raw", "order.*") on a line of a file whose path ends so, or reached from that
// line; "" and 0 mean any. Findings that end a block are always reported.
void ascend_sim_suppress(const char* kind, const char* file, int32_t line);
void ascend_sim_clear_suppressions(void);

// JSON list of the counters of the launches since the last clear, the latest 256 at most.
const char* ascend_sim_counters_json(void);
uint64_t ascend_sim_launch_count(void);
void ascend_sim_clear_counters(void);

// Forgets errors and counters, keeps allocations and switches.
void ascend_sim_reset(void);

}  // extern "C"
