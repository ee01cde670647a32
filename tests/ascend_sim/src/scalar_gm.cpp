#include "scalar_gm.h"

#include <algorithm>
#include <unordered_map>

#include "block.h"
#include "config.h"
#include "report.h"

namespace ascend_sim {

namespace {

// Line -> block index + 1 that stored into it by scalar stores in this launch.
std::unordered_map<uint64_t, int64_t> g_line_owner;

}  // namespace

void CheckLinesOfStores(const Call& call, Pipe pipe, const GmAccess& access, uint64_t from, uint64_t end) {
    if (g_line_owner.empty() || pipe == Pipe::S) {
        return;
    }
    const uint64_t base = access.allocation->address;
    for (uint64_t line = (base + from) / kCacheLine; line <= (base + end - 1) / kCacheLine; ++line) {
        if (g_line_owner.count(line) != 0) {
            Complain(call, pipe, "gm.line_shared",
                     "%s writes '%s' byte %llu, whose 64-byte cache line scalar stores also write; a line is written "
                     "back whole over its neighbours, expected one writer per line",
                     access.operand, access.allocation->name.c_str(), static_cast<unsigned long long>(from));
            return;
        }
    }
}

const uint8_t* ScalarGmRead(const Call& call, uint64_t address, uint32_t bytes) {
    Block& now = CurrentBlock();
    const uint32_t id = now.NoteScalarCall(call);
    ++now.counters.gm_scalar_reads;
    now.clock.ReadLine(address / kCacheLine);
    GmAccess access = ResolveGm(call, Pipe::S, "source", GmView{}, Ranges{address, bytes, 1, 0}, std::min(bytes, 8u));
    access.scalar_call = id;
    Allocation& allocation = *access.allocation;
    const uint64_t offset = address - allocation.address;
    for (uint64_t i = offset / allocation.unit() * allocation.unit(); i < offset + bytes; i += allocation.unit()) {
        const GmCell& cell = allocation.CellAt(i);
        if (cell.writer_block != now.index + 1 || cell.writer_pipe == Pipe::S) {
            continue;
        }
        const auto line = now.clean_lines.find((allocation.address + i) / kCacheLine);
        const uint32_t fresh = std::max(now.clean_all, line == now.clean_lines.end() ? 0u : line->second);
        if (cell.write > fresh) {
            Complain(call, Pipe::S, "gm.stale",
                     "reads '%s' byte %llu by the scalar cache after %s wrote it; expected DataCacheCleanAndInvalid of "
                     "that line after the write has finished",
                     allocation.name.c_str(), static_cast<unsigned long long>(i),
                     LoggedCall(cell.writer_pipe, cell.write, 0).c_str());
            break;
        }
    }
    CheckAndRecordGm(call, Pipe::S, access, now.time.Issued(Pipe::S));
    if (!allocation.states.empty()) {
        for (uint32_t i = 0; i < bytes; ++i) {
            if (allocation.states[offset + i] != ByteState::Defined) {
                Complain(call, Pipe::S, "read.unwritten", "reads '%s' byte %llu, which nothing has written",
                         allocation.name.c_str(), static_cast<unsigned long long>(offset + i));
                break;
            }
        }
    }
    return access.host;
}

uint8_t* ScalarGmWrite(const Call& call, uint64_t address, uint32_t bytes) {
    Block& now = CurrentBlock();
    const uint32_t id = now.NoteScalarCall(call);
    ++now.counters.gm_scalar_writes;
    GmAccess access =
        ResolveGm(call, Pipe::S, "destination", GmView{}, Ranges{address, bytes, 1, 0}, std::min(bytes, 8u));
    access.write = true;
    access.scalar_call = id;
    Allocation& allocation = *access.allocation;
    if (!GlobalConfig().scalar_gm_stores) {
        Complain(call, Pipe::S, "gm.scalar_store",
                 "stores '%s' byte %llu by the scalar unit; expected the value to go through UB and a copy (a scalar "
                 "store stays in the data cache and is written back as a whole line)",
                 allocation.name.c_str(), static_cast<unsigned long long>(address - allocation.address));
    } else {
        now.dirty_lines.emplace(address / kCacheLine, call);
    }
    const uint64_t line = address / kCacheLine;
    const auto owner = g_line_owner.emplace(line, now.index + 1).first;
    bool shared = owner->second != now.index + 1;
    const uint64_t first = std::max(line * kCacheLine, allocation.address) - allocation.address;
    const uint64_t last = std::min((line + 1) * kCacheLine, allocation.address + allocation.bytes) - allocation.address;
    for (uint64_t i = first / allocation.unit() * allocation.unit(); i < last; i += allocation.unit()) {
        const GmCell& cell = allocation.CellAt(i);
        shared =
            shared || (cell.writer_block != 0 && (cell.writer_block != now.index + 1 || cell.writer_pipe != Pipe::S));
    }
    if (shared) {
        Complain(call, Pipe::S, "gm.line_shared",
                 "stores into the 64-byte cache line at 0x%llx of '%s', which another block or copy also writes; "
                 "expected one writer per line",
                 static_cast<unsigned long long>(line * kCacheLine), allocation.name.c_str());
    }
    CheckAndRecordGm(call, Pipe::S, access, now.time.Issued(Pipe::S));
    return access.host;
}

void DataCacheCleanAndInvalidate(const Call& call, uint64_t address, bool whole_cache) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    const uint32_t finished = now.time.Known(Pipe::S, Pipe::Mte3);
    if (whole_cache) {
        now.clean_all = finished;
        now.dirty_lines.clear();
        now.clock.DropLines();
    } else {
        now.clean_lines[address / kCacheLine] = finished;
        now.dirty_lines.erase(address / kCacheLine);
        now.clock.DropLine(address / kCacheLine);
    }
}

uint64_t ArgumentBase() { return kArgumentBase; }

void DataCachePreload(const Call& call, uint64_t address) {
    Block& now = CurrentBlock();
    now.NoteCall(call);
    if (!now.clock.PreloadLine(address / kCacheLine)) {
        Warn(call, Pipe::S, "gm.preload_dropped",
             "%d lines are on their way already, by the time model; the hint does nothing", model::kMostPreloads);
    }
    if (address >= kArgumentBase + now.argument_bytes) {
        Complain(call, Pipe::S, "bounds.gm", "byte %llu of the arguments, of which there are %llu",
                 static_cast<unsigned long long>(address - kArgumentBase),
                 static_cast<unsigned long long>(now.argument_bytes));
    }
}

void CodePreload(const Call& call, int64_t units) {
    constexpr int64_t kUnitBytes = 2048;
    constexpr int64_t kMostUnits = 7;  // less than the 16 KB of a vector core's cache
    Block& now = CurrentBlock();
    now.NoteCall(call);
    if (units < 1 || units > kMostUnits) {
        Complain(call, Pipe::S, "range.field", "preFetchLen is %lld, expected 1..%lld units of %lld bytes",
                 static_cast<long long>(units), static_cast<long long>(kMostUnits), static_cast<long long>(kUnitBytes));
    }
    now.clock.PreloadCode(static_cast<double>(units * kUnitBytes));
}

void FinishScalarStores() {
    for (const auto& [line, call] : CurrentBlock().dirty_lines) {
        // What the toolkit builds cleans the cache when the kernel ends.
        Warn(call, Pipe::S, "gm.dirty_line",
             "the scalar store into the cache line at 0x%llx is written back by the kernel's end only; "
             "DataCacheCleanAndInvalid would say when",
             static_cast<unsigned long long>(line * kCacheLine));
        break;
    }
}

void ForgetScalarStores() { g_line_owner.clear(); }

}  // namespace ascend_sim
