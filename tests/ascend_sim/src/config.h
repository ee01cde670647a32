// Switches of the simulator, set through the C API.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ascend_sim {

enum class BlockOrder : uint8_t { Random, Ascending, Descending };

struct Config {
    bool strict = true;               // every order between pipes must be explicit, V after V included
    bool scalar_gm_stores = false;    // GlobalTensor::SetValue is an error unless allowed
    bool report_overflow = true;      // integer Add, Sub, Mul that wrap
    bool report_special_half = true;  // infinities and NaNs made by half and bfloat16 instructions
    bool as_built = false;  // what only an Atlas A2 or A3 pardons is a warning
    uint64_t tiling_key = 0;          // of the kernels that are launched
    bool memory_is_cold = false;      // the time model: what kernels read and write is in HBM, not in L2
    uint64_t seed = 1;
    BlockOrder order = BlockOrder::Random;
    size_t max_errors = 64;            // different errors kept
    uint64_t max_calls = 200'000'000;  // simulated calls a block may make before it counts as hanging
    uint32_t physical_blocks = 48;     // vector cores: the most blocks that can meet in SyncAll
};

Config& GlobalConfig();

}  // namespace ascend_sim
