// What a launch did, for benches and for tests that bound it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ascend_sim/runtime.h"
#include "time_model.h"

namespace ascend_sim {

struct Counters {
    uint64_t calls[kPipes] = {0, 0, 0, 0};     // instructions given to each pipe; S: UB and GM accesses
    uint64_t elements[kPipes] = {0, 0, 0, 0};  // vector elements; copies: bytes of global memory moved
    double cycles[kPipes] = {0, 0, 0, 0};      // the pipe is busy, by the time model
    double end_cycles = 0;                     // of the block, by the same
    double cold_cycles = 0;                    // waiting for arguments and code that are in no cache
    uint64_t code_instructions = 0;            // the same, each counted once
    uint64_t instructions = 0;                 // of the kernel's own code, where a table knows them
    uint64_t ub_scalar_reads = 0;
    uint64_t ub_scalar_writes = 0;
    uint64_t gm_scalar_reads = 0;
    uint64_t gm_scalar_writes = 0;
    uint64_t flags_set = 0;
    uint64_t flags_waited = 0;
    uint64_t barriers = 0;
    uint64_t nops = 0;
    uint32_t ub_peak_bytes = 0;
    std::map<uint64_t, double> code_cycles;  // by basic block, where that is asked for

    void KeepTime(const BlockTime& time);
    void Add(const Counters& other);
    uint64_t gm_bytes() const { return elements[2] + elements[3]; }
    std::string Fields() const;  // JSON members without the braces
};

struct GmTraffic {
    uint64_t read_bytes = 0;
    uint64_t written_bytes = 0;
    uint64_t block_bytes = 0;  // both, every 32-byte block that a copy touches counted in full
    uint64_t shared_pieces = 0;  // ends of writes within 32 bytes into which another block has written
};

struct LaunchCounters {
    std::string kernel;
    uint32_t blocks = 0;
    Counters total;
    std::vector<Counters> per_block;
    std::map<std::string, GmTraffic> traffic;  // by allocation name

    // Of the task, launch included.
    double ModelUs() const;
    std::string ToJson() const;
};

}  // namespace ascend_sim
