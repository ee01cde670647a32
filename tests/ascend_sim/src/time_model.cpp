#include "time_model.h"

#include <unordered_map>

#include "block.h"

namespace ascend_sim {

namespace {

struct BasicBlock {
    uint32_t instructions;
    uint64_t block;  // that ran it last
};

std::unordered_map<uint64_t, BasicBlock> g_basic_blocks;
uint64_t g_block = 1;
uint64_t g_base = 0;
bool g_keep_code_times = false;
uint64_t g_code = 0;  // the basic block that runs, from g_base on, and since when
double g_code_began = 0;

}  // namespace

double CopyCycles(const Ranges& rows, double bytes_per_cycle) {
    const auto requests = [](uint64_t first, uint64_t bytes) {
        const uint64_t begin = first / model::kRequestBytes;
        return ((first + bytes + model::kRequestBytes - 1) / model::kRequestBytes - begin) * model::kRequestBytes;
    };
    double cycles = 0;
    for (uint32_t row = 0; row < rows.count; ++row) {
        const double bytes = static_cast<double>(requests(rows.first + row * rows.pitch, rows.bytes));
        cycles += std::max(model::kCopyRow, bytes / bytes_per_cycle);
    }
    return std::max(cycles, model::kCopyInstruction);
}

void BlockTime::Begin(uint64_t argument_bytes, int64_t blocks, bool from_hbm) {
    *this = BlockTime();
    share_ = (from_hbm ? model::kHbmBytesPerCycle : model::kL2BytesPerCycle) / static_cast<double>(blocks);
    argument_lines_ = (argument_bytes + kCacheLine - 1) / kCacheLine;
}

void BlockTime::ReadArguments() {
    for (uint64_t line = 0; line < argument_lines_; ++line) {
        Cold(WaitForLine(kArgumentBase / kCacheLine + line));
    }
    argument_lines_ = 0;
}

double BlockTime::WaitForLine(uint64_t line) {
    const auto found = lines_.emplace(line, now_ + model::kDataLine).first;
    return std::max(0.0, found->second - now_);
}

bool BlockTime::PreloadLine(uint64_t line) {
    Scalar(model::kScalarInstruction);
    double& oldest = *std::min_element(std::begin(preloads_), std::end(preloads_));
    if (oldest > now_) {
        return false;
    }
    oldest = now_ + model::kPreloadedDataLine;
    lines_.emplace(line, oldest);
    return true;
}

void BlockTime::PreloadCode(double bytes) {
    Scalar(model::kScalarInstruction);
    preloaded_bytes_ = bytes;
    code_arrives_ = now_ + model::kFirstPreloadedCodeLine;
}

void BlockTime::NewCode(double bytes) {
    const double preloaded = std::min(bytes, preloaded_bytes_);
    preloaded_bytes_ -= preloaded;
    const double lines = preloaded / model::kCodeLineBytes;
    code_arrives_ += lines * model::kPreloadedCodeLine;
    const double wait = std::clamp(code_arrives_ - now_, 0.0, lines * model::kCodeLine);
    Cold(wait + (bytes - preloaded) / model::kCodeLineBytes * model::kCodeLine);
}

void BlockTime::Run(Pipe pipe, double busy, double latency) {
    const int p = Index(pipe);
    const double start = std::max(now_, may_start_[p]);
    may_start_[p] = start + busy;
    done_[p] = std::max(done_[p], start + busy + latency);
    busy_[p] += busy;
}

void BlockTime::Vector(uint64_t elements, double per_cycle) {
    Scalar(model::kVectorIssue);
    Run(Pipe::V, std::max(1.0, static_cast<double>(elements) / per_cycle), model::kVectorHead);
}

void BlockTime::Copy(Pipe pipe, const Ranges& rows) {
    Scalar(model::kCopyIssue);
    const bool load = pipe == Pipe::Mte2;
    const double rate = load ? model::kLoadBytesPerCycle : model::kStoreBytesPerCycle;
    const int p = Index(pipe);
    if (share_ < rate) {
        // Loads and stores share what memory gives.
        may_start_[p] = std::max(may_start_[p], memory_free_);
    }
    Run(pipe, CopyCycles(rows, std::min(rate, share_)), load ? model::kLoadLatency : model::kStoreLatency);
    memory_free_ = may_start_[p];
}

void SetInstructionTable(uint64_t base, const uint64_t* offsets, const uint32_t* instructions, uint64_t count) {
    g_basic_blocks.clear();
    g_base = base;
    for (uint64_t i = 0; i < count; ++i) {
        g_basic_blocks[base + offsets[i]] = BasicBlock{instructions[i], 0};
    }
}

void ForgetRunCode() {
    ++g_block;
    g_code = 0;
    g_code_began = 0;
}

void KeepCodeTimes(bool keep) { g_keep_code_times = keep; }

void LeaveCode() {
    if (g_keep_code_times) {
        Block& now = CurrentBlock();
        now.counters.code_cycles[g_code] += now.clock.now() - g_code_began;
        g_code_began = now.clock.now();
    }
}

}  // namespace ascend_sim

// Called by every basic block of a kernel.
extern "C" __attribute__((visibility("default"))) void __sanitizer_cov_trace_pc(void) {
    using namespace ascend_sim;
    if (g_basic_blocks.empty()) {
        return;
    }
    const auto found = g_basic_blocks.find(reinterpret_cast<uint64_t>(__builtin_return_address(0)));
    if (found == g_basic_blocks.end()) {
        return;
    }
    LeaveCode();
    g_code = found->first - g_base;
    BasicBlock& run = found->second;
    Block& now = CurrentBlock();
    const double instructions = run.instructions * model::kHostInstruction;
    now.clock.Scalar(instructions * model::kScalarInstruction);
    now.counters.instructions += run.instructions;
    if (run.block != g_block) {
        run.block = g_block;
        now.counters.code_instructions += run.instructions;
        now.clock.NewCode(instructions * model::kInstructionBytes);
    }
}
