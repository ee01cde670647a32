// What the kernel-side headers ask of the simulator library. Addresses are byte offsets into the block's UB.
#pragma once

#include <cstdint>

#include "ascend_sim/call.h"
#include "ascend_sim/types.h"

namespace ascend_sim {

constexpr uint32_t kUbBytes = 192 * 1024;
constexpr uint32_t kNoBuffer = 0xffffffffu;

enum class Pipe : uint8_t { S = 0, V = 1, Mte2 = 2, Mte3 = 3 };
constexpr int kPipes = 4;

// What is known about a byte of UB. Larger is worse: an element is as bad as its worst byte.
enum class ByteState : uint8_t { Defined = 0, Padding = 1, Unwritten = 2 };

// A view of UB: what a LocalTensor is made of.
struct UbView {
    uint32_t address = 0;         // bytes from the start of UB
    uint32_t bytes = 0;           // up to the end of the tensor
    uint32_t buffer = kNoBuffer;  // index of the TPipe buffer that it lies in
    AscendC::TPosition position = AscendC::TPosition::GM;
};

// One run of equally spaced byte ranges, of UB or of global memory.
struct Ranges {
    uint64_t first = 0;  // byte address
    uint32_t bytes = 0;  // of each range
    uint32_t count = 1;
    uint64_t pitch = 0;  // start to start, bytes
};

// Ends the block after recording the error; the simulator goes on with the next block.
[[noreturn]] void Fail(const Call& call, Pipe pipe, const char* kind, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// Records an error and lets the kernel go on.
void Complain(const Call& call, Pipe pipe, const char* kind, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// Records something that is no mistake yet, and does not change the launch's status.
void Warn(const Call& call, Pipe pipe, const char* kind, const char* format, ...) __attribute__((format(printf, 4, 5)));

uint8_t* UbMemory();
ByteState* UbStates();
// A raw pointer into this part of UB leaves the simulator.
void ExposeUb(const Call& call, const UbView& view);

void ScalarUbRead(const Call& call, uint32_t address, uint32_t bytes);
void ScalarUbWrite(const Call& call, uint32_t address, uint32_t bytes);

// Scalar access to global memory through the data cache. Returns the host address of the bytes.
const uint8_t* ScalarGmRead(const Call& call, uint64_t address, uint32_t bytes);
uint8_t* ScalarGmWrite(const Call& call, uint64_t address, uint32_t bytes);
void DataCacheCleanAndInvalidate(const Call& call, uint64_t address, bool whole_cache);
// Where the launch's arguments lie; only for the hints below, which change nothing but the time.
uint64_t ArgumentBase();
void DataCachePreload(const Call& call, uint64_t address);
void CodePreload(const Call& call, int64_t units);

void NoteNop(const Call& call, Pipe pipe);

}  // namespace ascend_sim
