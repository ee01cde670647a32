// Global memory: what is allocated, what was written, and who touched it during this launch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ascend_sim/instruction.h"
#include "ascend_sim/runtime.h"
#include "counters.h"

namespace ascend_sim {

// One unit (4 bytes, or 1 once an access was not 4-byte aligned) of a page touched in this launch.
struct GmCell {
    uint32_t write = 0;  // instruction number within the writing block
    uint32_t read = 0;
    uint32_t scalar_call = 0;  // the last scalar access: Block::scalar_calls
    uint16_t writer_block = 0;  // block index + 1, 0: nobody
    uint16_t reader_block = 0;
    Pipe writer_pipe = Pipe::S;
    Pipe reader_pipe = Pipe::S;
    bool many_readers = false;
    bool atomic = false;
};

struct GmPage {
    uint64_t epoch = 0;
    std::vector<GmCell> cells;
};

struct Allocation {
    std::string name;
    uint64_t address = 0;  // as the kernel sees it
    uint8_t* host = nullptr;
    uint64_t bytes = 0;
    bool fine = false;
    std::vector<std::unique_ptr<GmPage>> pages;
    std::vector<ByteState> states;  // empty: all defined
    GmTraffic traffic;

    GmCell& CellAt(uint64_t offset);
    void Refine();
    uint32_t unit() const { return fine ? 1 : 4; }
};

struct GmAccess {
    Allocation* allocation = nullptr;
    uint8_t* host = nullptr;
    Ranges ranges;
    const char* operand = "";
    bool write = false;
    bool atomic = false;
    uint32_t scalar_call = 0;
};

// Checks declared size, allocation and alignment of every range.
GmAccess ResolveGm(const Call& call, Pipe pipe, const char* operand, const GmView& view, const Ranges& ranges,
                   uint32_t align);
void CheckAndRecordGm(const Call& call, Pipe pipe, const GmAccess& access, uint32_t number);

void RegisterGm(uint64_t address, void* host, uint64_t bytes, const char* name, bool initialised);
bool UnregisterGm(uint64_t address);
void ClearGm();
// Forgets who touched what: at the start of a launch and when all blocks have met.
void NextGmEpoch();
void ResetTraffic();
std::map<std::string, GmTraffic> CollectTraffic();
// Reports memory that was registered as unwritten, is named by an argument of the launch, and was left as it was.
void ReportUnwrittenOutputs(const std::vector<uint64_t>& arguments);
// Reports cache lines that scalar stores left dirty.
void FinishScalarStores();
void ForgetScalarStores();

}  // namespace ascend_sim
