// Time of one block by published figures: when each instruction starts and ends, pipe by pipe, as its flags and
// barriers let it. A model; nothing here was measured on our side. All constants of it stand in this file, in cycles
// of 1.85 GHz.
//
// Sources, all of cann/asc-devkit (documents and samples of 2026): [add] the sample add_high_performance, cases 0 to 6
// on Atlas A2; [copy] the sample data_copy, GM to UB on A2 and A3; [preload] the sample data_cache_preload on A2;
// [mask] the page on reusing the vector mask; [peak] the table of vector peak rates; [same] the page on accesses to one
// address. tests/sim/test_time_model.py runs their loops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "ascend_sim/runtime.h"

namespace ascend_sim {

// Where a launch's arguments lie, for its blocks.
constexpr uint64_t kArgumentBase = uint64_t{1} << 62;

namespace model {

constexpr double kCyclesPerUs = 1850;  // [add] 1.85 GHz

// A launch: task time beyond the time of the vector cores. 0.46 us with one block, 6.9 us in the mean of eight
// runs with 48, between 2.5 and 10.5 [add, copy].
constexpr double kLaunchUs = 0.5;
constexpr double kLaunchUsPerBlock = 0.14;

// The scalar unit. [add] case 0: 34.2 cycles an element for two loads, one store, three conversions or sums and a loop.
// Of the instructions that the host compiler makes of a kernel. Assumed: the host spills registers around its counters and
// calls, which on the device are instructions of their own. [add] case 0 comes out a fifth too short.
constexpr double kHostInstruction = 0.65;
constexpr double kScalarInstruction = 1;  // assumed: of a load or store of UB, and of what a call needs
constexpr double kUbLoadStall = 10;       // so that case 0 comes out

// The data cache, cold at every launch, in which the launch's arguments are read too: a line that is read, and one that
// was asked for before. [preload] 211 cycles for a byte that lies anywhere in 64 KB, its index and the loop included;
// 128 where it is asked for one byte before; no more than four are to be asked for at a time, and a hint that finds no
// room is none. Assumed: four come as soon as one.
constexpr double kDataLine = 210;
constexpr double kPreloadedDataLine = 115;
constexpr double kDataHit = 5;  // assumed: what others measured on A5, in ticks
constexpr int kMostPreloads = 4;

// The instruction cache, cold at every launch too. Assumed: the hardware's own prefetching hides most of a line. Lines
// that ICachePreLoad asks for come one after the other behind the first, as they lie, which is taken to be the order in
// which they run. Assumed as well; on A5 others measured 10 to 15 ticks for each of 32 cold lines, and none for
// preloaded ones.
constexpr uint64_t kCodeLineBytes = 128;
constexpr double kCodeLine = 50;
constexpr double kFirstPreloadedCodeLine = kDataLine;
constexpr double kPreloadedCodeLine = 16;
constexpr double kInstructionBytes = 4;

// Calls that give an instruction to another pipe. [copy] scenario 1: 20.9 cycles for a copy of 128 bytes, back to back.
constexpr double kCopyIssue = 16;
// [mask] four cycles for the mask around an instruction over a count.
constexpr double kVectorIssue = 6;
// [add] cases 1 and 3 leave 60 to 150 cycles an iteration to six flags.
constexpr double kFlag = 20;  // from set to seen
constexpr double kFlagIssue = 1;

// Vector: [add] case 6 takes 149.6 cycles for 127 repeats.
constexpr double kVectorHead = 22;

// Copies. [copy] scenario 1: an instruction at least every 20.9 cycles; scenario 2: 8.5 cycles a row of 128 bytes.
constexpr double kCopyInstruction = 20;
constexpr double kCopyRow = 8;
constexpr double kLoadBytesPerCycle = 64;   // of a core. [copy] scenarios 5 and 6: 69 from L2
constexpr double kStoreBytesPerCycle = 32;  // [add] cases 2 and 3: 26 to 28
// [add] case 1: 780 cycles for two loads of 8 KB, an addition and the flags between them.
constexpr double kLoadLatency = 400;
constexpr double kStoreLatency = 100;  // [add]; the cases leave no more
constexpr uint64_t kRequestBytes = 128;  // what a row is rounded up to on both sides
// All cores together. [copy] scenario 3, [add] cases 3 and 4: 1.45 to 1.55 TB/s of the 1.8 of HBM; L2 5.2 TB/s.
constexpr double kHbmBytesPerCycle = 810;
constexpr double kL2BytesPerCycle = 2810;

}  // namespace model

// What one copy moves in global memory: `count` rows of `bytes`, `pitch` apart.
double CopyCycles(const Ranges& rows, double bytes_per_cycle);

class BlockTime {
  public:
    void Begin(uint64_t argument_bytes, int64_t blocks, bool from_hbm);
    // All of them, line by line; once. Which of them a kernel reads where is for its compiler.
    void ReadArguments();

    void Scalar(double cycles) {
        scalar_ += cycles;
        now_ += cycles;
    }
    void Vector(uint64_t elements, double per_cycle);
    // rows: from the start of an allocation.
    void Copy(Pipe pipe, const Ranges& rows);

    // When a flag that is set now is seen.
    double SetFlag(Pipe source) {
        Scalar(model::kFlagIssue);
        return (source == Pipe::S ? now_ : done_[Index(source)]) + model::kFlag;
    }
    void WaitFlag(Pipe target, double seen) {
        Scalar(model::kFlagIssue);
        if (target == Pipe::S) {
            now_ = std::max(now_, seen);
        } else {
            may_start_[Index(target)] = std::max(may_start_[Index(target)], seen);
        }
    }
    void Barrier(Pipe pipe) {
        Scalar(model::kFlagIssue);
        may_start_[Index(pipe)] = std::max(may_start_[Index(pipe)], done_[Index(pipe)]);
    }
    void BarrierAll() {
        Scalar(model::kFlagIssue);
        now_ = End() + model::kFlag;
    }

    // The scalar unit reads a line of memory; has the cache ask for it; the cache drops one, or all.
    void ReadLine(uint64_t line) { Scalar(std::max(model::kDataHit, WaitForLine(line))); }
    // False if there is no room for the hint.
    bool PreloadLine(uint64_t line);
    void DropLine(uint64_t line) { lines_.erase(line); }
    void DropLines() { lines_.clear(); }

    // Code that runs for the first time.
    void NewCode(double bytes);
    // What comes next in the code, as far as these bytes.
    void PreloadCode(double bytes);

    double now() const { return now_; }
    double End() const { return std::max({now_, done_[1], done_[2], done_[3]}); }
    double scalar() const { return scalar_; }
    double cold() const { return cold_; }
    double busy(Pipe pipe) const { return busy_[Index(pipe)]; }

  private:
    static int Index(Pipe pipe) { return static_cast<int>(pipe); }
    void Run(Pipe pipe, double busy, double latency);
    double WaitForLine(uint64_t line);
    void Cold(double cycles) {
        cold_ += cycles;
        now_ += cycles;
    }

    double now_ = 0;  // of the scalar unit
    double scalar_ = 0;
    double cold_ = 0;
    double may_start_[kPipes] = {0, 0, 0, 0};
    double done_[kPipes] = {0, 0, 0, 0};
    double busy_[kPipes] = {0, 0, 0, 0};
    double memory_free_ = 0;
    double share_ = 0;  // bytes a cycle that memory has for this core
    uint64_t argument_lines_ = 0;                 // that are yet to be read
    std::unordered_map<uint64_t, double> lines_;  // of the data cache, and when each is there
    double preloads_[model::kMostPreloads] = {};  // when those that were asked for are there
    double preloaded_bytes_ = 0;  // of code that has not run yet
    double code_arrives_ = 0;     // the last that has run of it
};

// Instructions of the kernel's own code, counted as they run: a table from the addresses of the instrumented basic
// blocks to the number of instructions in them (instructions.py).
void SetInstructionTable(uint64_t base, const uint64_t* offsets, const uint32_t* instructions, uint64_t count);
// What runs from here on is in no instruction cache.
void ForgetRunCode();

// Keeps how long the scalar unit is at each of these basic blocks, waiting for other pipes included.
void KeepCodeTimes(bool keep);
// Ends the stay at the basic block that runs.
void LeaveCode();

}  // namespace ascend_sim
