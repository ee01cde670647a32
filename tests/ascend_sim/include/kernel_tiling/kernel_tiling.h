// Structs of the toolkit that tiling structs have as members. Their content concerns communication between devices, which is
// not simulated; only their sizes matter.
#pragma once

#include <cstdint>

struct Mc2InitTiling {
    uint64_t reserved[8];
};
struct Mc2CcTiling {
    uint64_t reserved[35];
};
