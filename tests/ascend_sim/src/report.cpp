#include "report.h"

#include <cstdio>
#include <cstring>

#include "block.h"
#include "call_chain.h"
#include "config.h"

namespace ascend_sim {

std::string FormatList(const char* format, va_list list) {
    char text[1024];
    std::vsnprintf(text, sizeof(text), format, list);
    return text;
}

std::string Format(const char* format, ...) {
    va_list list;
    va_start(list, format);
    std::string text = FormatList(format, list);
    va_end(list);
    return text;
}

const char* PipeName(Pipe pipe) {
    switch (pipe) {
        case Pipe::S:
            return "S";
        case Pipe::V:
            return "V";
        case Pipe::Mte2:
            return "MTE2";
        case Pipe::Mte3:
            return "MTE3";
    }
    return "?";
}

std::string Where(const Call& call) {
    if (call.name == nullptr) {
        return "an earlier call";
    }
    const char* file = call.site.file == nullptr ? "?" : call.site.file;
    const char* slash = std::strrchr(file, '/');
    return Format("%s (%s:%d)", call.name, slash != nullptr ? slash + 1 : file, call.site.line);
}

std::string Quote(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            out += Format("\\u%04x", c);
        } else {
            out += c;
        }
    }
    return out + "\"";
}

namespace {

bool EndsWith(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool KindMatches(const std::string& kind, const std::string& pattern) {
    if (!pattern.empty() && pattern.back() == '*') {
        return kind.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0;
    }
    return kind == pattern;
}

}  // namespace

bool Report::Suppressed(const Error& error) const {
    for (const Suppression& one : suppressions_) {
        if (!KindMatches(error.kind, one.kind)) {
            continue;
        }
        if (EndsWith(error.file, one.file) && (one.line == 0 || one.line == error.line)) {
            return true;
        }
        // The chain names files without their folders: ", a.h:14, b.cpp:122,".
        const size_t slash = one.file.rfind('/');
        const std::string name = slash == std::string::npos ? one.file : one.file.substr(slash + 1);
        const std::string wanted = ", " + name + ":" + (one.line == 0 ? "" : std::to_string(one.line) + ",");
        if (!name.empty() && (", " + error.chain + ",").find(wanted) != std::string::npos) {
            return true;
        }
    }
    return false;
}

void Report::Clear() {
    errors_.clear();
    warnings_.clear();
    total_ = 0;
}

void Report::Add(const Call& call, const char* pipe, const char* kind, const std::string& text, Severity severity) {
    const Block& block = CurrentBlock();
    const char* file = call.site.file == nullptr ? "" : call.site.file;
    std::vector<Error>& found = severity == Severity::Warning ? warnings_ : errors_;
    const uint64_t counts = severity == Severity::Warning ? 0 : 1;
    for (Error& error : found) {
        if (error.line == call.site.line && error.kind == kind && error.call == call.name && error.file == file &&
            error.kernel == block.kernel) {
            ++error.count;
            total_ += counts;
            return;
        }
    }
    Error error;
    error.kind = kind;
    error.kernel = block.kernel;
    error.block = block.running ? block.index : -1;
    error.call = call.name;
    error.file = file;
    error.line = call.site.line;
    error.pipe = pipe;
    error.count = 1;
    error.chain = block.running && found.size() < GlobalConfig().max_errors ? KernelCallChain() : "";
    if (severity != Severity::Fatal && Suppressed(error)) {
        return;
    }
    total_ += counts;
    if (found.size() >= GlobalConfig().max_errors) {
        return;
    }
    error.message = Format("[simulated] kernel %s, block %lld of %lld, %s on pipe %s: %s: ", block.kernel,
                           static_cast<long long>(error.block), static_cast<long long>(block.count),
                           Where(call).c_str(), pipe, kind) +
                    text;
    if (!error.chain.empty()) {
        error.message += "; reached from " + error.chain;
    }
    found.push_back(error);
}

std::string Report::ToJson(const std::vector<Error>& found) {
    std::string out = "[";
    for (const Error& error : found) {
        out += out.size() > 1 ? ",\n" : "\n";
        out += "{\"kind\": " + Quote(error.kind) + ", \"kernel\": " + Quote(error.kernel) +
               ", \"block\": " + std::to_string(error.block) + ", \"call\": " + Quote(error.call) +
               ", \"file\": " + Quote(error.file) + ", \"line\": " + std::to_string(error.line) +
               ", \"pipe\": " + Quote(error.pipe) + ", \"count\": " + std::to_string(error.count) +
               ", \"chain\": " + Quote(error.chain) + ", \"message\": " + Quote(error.message) + "}";
    }
    return out + "]";
}

Report& GlobalReport() {
    static Report report;
    return report;
}

void Complain(const Call& call, Pipe pipe, const char* kind, const char* format, ...) {
    va_list list;
    va_start(list, format);
    const std::string text = FormatList(format, list);
    va_end(list);
    GlobalReport().Add(call, PipeName(pipe), kind, text);
}

void Warn(const Call& call, Pipe pipe, const char* kind, const char* format, ...) {
    va_list list;
    va_start(list, format);
    const std::string text = FormatList(format, list);
    va_end(list);
    GlobalReport().Add(call, PipeName(pipe), kind, text, Severity::Warning);
}

void Fail(const Call& call, Pipe pipe, const char* kind, const char* format, ...) {
    va_list list;
    va_start(list, format);
    const std::string text = FormatList(format, list);
    va_end(list);
    GlobalReport().Add(call, PipeName(pipe), kind, text, Severity::Fatal);
    throw BlockAborted{};
}

}  // namespace ascend_sim
