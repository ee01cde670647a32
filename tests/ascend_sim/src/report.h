// Collected errors, and the JSON that tests read.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <string>
#include <utility>
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

enum class Severity : uint8_t {
    Fatal,  // ends the block
    Error,
    Warning,
};

// Findings that a caller knows and does not want: of a kind ("order.raw", or "order.*" and "*"), on a line of the kernel
// or of a helper that the line calls. Empty file, line 0: any.
struct Suppression {
    std::string kind;
    std::string file;  // the end of its path
    int line;
};

class Report {
  public:
    void Add(const Call& call, const char* pipe, const char* kind, const std::string& text,
             Severity severity = Severity::Error);
    void Clear();
    // Fatal findings are not suppressed: what the block left undone would go unnoticed.
    void Suppress(Suppression what) { suppressions_.push_back(std::move(what)); }
    void ClearSuppressions() { suppressions_.clear(); }
    // Errors, warnings not counted, those included that were too many to keep.
    uint64_t total() const { return total_; }
    std::string ErrorsJson() const { return ToJson(errors_); }
    std::string WarningsJson() const { return ToJson(warnings_); }

  private:
    bool Suppressed(const Error& error) const;
    static std::string ToJson(const std::vector<Error>& found);

    std::vector<Error> errors_;
    std::vector<Error> warnings_;
    std::vector<Suppression> suppressions_;
    uint64_t total_ = 0;
};

Report& GlobalReport();
const char* PipeName(Pipe pipe);
std::string Quote(const std::string& text);
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string FormatList(const char* format, va_list list);
std::string Where(const Call& call);

}  // namespace ascend_sim
