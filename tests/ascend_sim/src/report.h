// Collected errors, and the JSON that tests read.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <string>
#include <vector>

#include "ascend_sim/runtime.h"

namespace ascend_sim {

struct Error {
    std::string kind;
    std::string kernel;
    int64_t block;  // -1: not inside a block
    std::string call;
    std::string file;
    int line;
    std::string pipe;
    std::string chain;    // the kernel's lines that led here, innermost first
    std::string message;  // the whole sentence, all of the above included
    uint32_t count;       // how often the same line made the same kind of error
};

// Thrown to leave a kernel whose block cannot go on.
struct BlockAborted {};

class Report {
  public:
    void Add(const Call& call, const char* pipe, const char* kind, const std::string& text);
    void Clear() { errors_.clear(); }
    const std::vector<Error>& errors() const { return errors_; }
    uint64_t total() const;
    std::string ToJson() const;

  private:
    std::vector<Error> errors_;
};

Report& GlobalReport();
const char* PipeName(Pipe pipe);
std::string Quote(const std::string& text);
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string FormatList(const char* format, va_list list);
std::string Where(const Call& call);

}  // namespace ascend_sim
