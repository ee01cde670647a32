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

void Report::Add(const Call& call, const char* pipe, const char* kind, const std::string& text) {
    const Block& block = CurrentBlock();
    const char* file = call.site.file == nullptr ? "" : call.site.file;
    for (Error& error : errors_) {
        if (error.line == call.site.line && error.kind == kind && error.call == call.name && error.file == file &&
            error.kernel == block.kernel) {
            ++error.count;
            return;
        }
    }
    if (errors_.size() >= GlobalConfig().max_errors) {
        return;
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
    error.message = Format("[simulated] kernel %s, block %lld of %lld, %s on pipe %s: %s: ", block.kernel,
                           static_cast<long long>(error.block), static_cast<long long>(block.count),
                           Where(call).c_str(), pipe, kind) +
                    text;
    error.chain = block.running ? KernelCallChain() : "";
    if (!error.chain.empty()) {
        error.message += "; reached from " + error.chain;
    }
    errors_.push_back(error);
}

uint64_t Report::total() const {
    uint64_t sum = 0;
    for (const Error& error : errors_) {
        sum += error.count;
    }
    return sum;
}

std::string Report::ToJson() const {
    std::string out = "[";
    for (const Error& error : errors_) {
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

void Fail(const Call& call, Pipe pipe, const char* kind, const char* format, ...) {
    va_list list;
    va_start(list, format);
    const std::string text = FormatList(format, list);
    va_end(list);
    GlobalReport().Add(call, PipeName(pipe), kind, text);
    throw BlockAborted{};
}

}  // namespace ascend_sim
