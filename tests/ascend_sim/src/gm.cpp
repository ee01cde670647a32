#include "gm.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <unordered_map>

#include "block.h"
#include "config.h"
#include "report.h"
#include "scalar_gm.h"

namespace ascend_sim {

namespace {

constexpr uint64_t kPageBytes = 4096;

std::map<uint64_t, Allocation> g_allocations;  // by address
uint64_t g_epoch = 1;

Allocation* Find(uint64_t address) {
    auto it = g_allocations.upper_bound(address);
    if (it == g_allocations.begin()) {
        return nullptr;
    }
    --it;
    return address < it->second.address + it->second.bytes ? &it->second : nullptr;
}

std::string Known() {
    std::string text;
    for (const auto& [address, allocation] : g_allocations) {
        if (text.size() > 300) {
            return text + ", ...";
        }
        text += (text.empty() ? "" : ", ") + allocation.name +
                Format(" 0x%llx+%llu", static_cast<unsigned long long>(address),
                       static_cast<unsigned long long>(allocation.bytes));
    }
    return text.empty() ? "none" : text;
}

}  // namespace

GmCell& Allocation::CellAt(uint64_t offset) {
    auto& page = pages[offset / kPageBytes];
    if (page == nullptr) {
        page = std::make_unique<GmPage>();
    }
    if (page->epoch != g_epoch) {
        page->epoch = g_epoch;
        page->cells.assign(kPageBytes / unit(), GmCell{});
    }
    return page->cells[offset % kPageBytes / unit()];
}

void Allocation::Refine() {
    fine = true;
    for (auto& page : pages) {
        if (page == nullptr || page->epoch != g_epoch) {
            continue;
        }
        std::vector<GmCell> bytes(kPageBytes);
        for (size_t i = 0; i < bytes.size(); ++i) {
            bytes[i] = page->cells[i / 4];
        }
        page->cells = std::move(bytes);
    }
}

GmAccess ResolveGm(const Call& call, Pipe pipe, const char* operand, const GmView& view, const Ranges& ranges,
                   uint32_t align) {
    const uint64_t end = ranges.first + (ranges.count - 1) * ranges.pitch + ranges.bytes;
    if (ranges.first % align != 0) {
        Fail(call, pipe, "align.gm", "%s starts at global address 0x%llx; expected a multiple of %u bytes", operand,
             static_cast<unsigned long long>(ranges.first), align);
    }
    Allocation* allocation = Find(ranges.first);
    if (allocation == nullptr) {
        Fail(call, pipe, "gm.unregistered", "%s touches 0x%llx..0x%llx, which is no known allocation; known: %s",
             operand, static_cast<unsigned long long>(ranges.first), static_cast<unsigned long long>(end),
             Known().c_str());
    }
    if (end > allocation->address + allocation->bytes) {
        Fail(call, pipe, "bounds.gm", "%s needs bytes %llu..%llu of '%s'; expected at most its %llu bytes", operand,
             static_cast<unsigned long long>(ranges.first - allocation->address),
             static_cast<unsigned long long>(end - allocation->address), allocation->name.c_str(),
             static_cast<unsigned long long>(allocation->bytes));
    }
    const bool sized = view.bytes != ~uint64_t{0};
    if (sized && (ranges.first < view.address || end > view.address + view.bytes)) {
        // The memory is there: the device would go on.
        Complain(call, pipe, "bounds.gm",
             "%s needs %llu bytes of a global tensor ('%s') that has %llu left by its SetGlobalBuffer size", operand,
             static_cast<unsigned long long>(end - ranges.first), allocation->name.c_str(),
             static_cast<unsigned long long>(view.bytes));
    }
    const uint64_t offset = ranges.first - allocation->address;
    if (!allocation->fine && ((offset | ranges.bytes | (ranges.count > 1 ? ranges.pitch : 0)) % 4) != 0) {
        allocation->Refine();
    }
    return GmAccess{allocation, allocation->host + offset, ranges, operand, false, false, 0};
}

namespace {

std::string Bytes(const GmAccess& access, uint64_t offset) {
    return Format("'%s' byte %llu (0x%llx)", access.allocation->name.c_str(), static_cast<unsigned long long>(offset),
                  static_cast<unsigned long long>(access.allocation->address + offset));
}

// False: a conflict was reported, the rest of this access is not looked at.
bool CheckCell(const Call& call, Pipe pipe, const GmAccess& access, const GmCell& cell, uint64_t offset) {
    Block& now = CurrentBlock();
    const uint16_t self = static_cast<uint16_t>(now.index + 1);
    const char* does = access.write ? "writes" : "reads";
    if (cell.writer_block != 0 && cell.writer_block != self && !(access.atomic && cell.atomic)) {
        Complain(call, pipe, access.write ? "blocks.overlap" : "blocks.read_of_foreign_write",
                 "%s %s %s, which block %d writes in the same launch; expected disjoint blocks", access.operand, does,
                 Bytes(access, offset).c_str(), cell.writer_block - 1);
        return false;
    }
    if (access.write && cell.reader_block != 0 && (cell.many_readers || cell.reader_block != self)) {
        const int other = cell.reader_block != self ? cell.reader_block - 1 : -1;
        Complain(call, pipe, "blocks.write_of_foreign_read",
                 "%s writes %s, which block %d reads in the same launch; expected no order between blocks to matter",
                 access.operand, Bytes(access, offset).c_str(), other);
        return false;
    }
    // The compiler looks after scalar reads, but not after scalar stores to global memory.
    const auto ordered = [&](Pipe earlier, uint32_t number, bool scalar_read) {
        return scalar_read ? OrderedAfter(now, pipe, earlier, number) : now.time.Ordered(pipe, earlier, number);
    };
    if (cell.writer_block == self && !(access.atomic && cell.atomic) &&
        !ordered(cell.writer_pipe, cell.write, pipe == Pipe::S && !access.write)) {
        Complain(call, pipe, access.write ? "order.gm_waw" : "order.gm_raw",
                 "%s %s %s, which %s on pipe %s writes, and nothing orders them; expected %s between the two",
                 access.operand, does, Bytes(access, offset).c_str(), LoggedCall(cell.writer_pipe, cell.write, cell.scalar_call).c_str(),
                 PipeName(cell.writer_pipe),
                 pipe == cell.writer_pipe ? Format("PipeBarrier<PIPE_%s>", PipeName(pipe)).c_str()
                                          : Format("a %s_%s flag", PipeName(cell.writer_pipe), PipeName(pipe)).c_str());
        return false;
    }
    if (access.write && cell.reader_block == self &&
        !ordered(cell.reader_pipe, cell.read, cell.reader_pipe == Pipe::S && pipe != Pipe::S)) {
        Complain(call, pipe, "order.gm_war",
                 "%s overwrites %s, which %s on pipe %s reads, and nothing orders them; expected a %s_%s flag between "
                 "the two",
                 access.operand, Bytes(access, offset).c_str(), LoggedCall(cell.reader_pipe, cell.read, cell.scalar_call).c_str(),
                 PipeName(cell.reader_pipe), PipeName(cell.reader_pipe), PipeName(pipe));
        return false;
    }
    return true;
}

void RecordCell(Pipe pipe, const GmAccess& access, GmCell& cell, uint32_t number) {
    const uint16_t self = static_cast<uint16_t>(CurrentBlock().index + 1);
    cell.scalar_call = pipe == Pipe::S ? access.scalar_call : cell.scalar_call;
    if (access.write) {
        cell.write = number;
        cell.writer_block = self;
        cell.writer_pipe = pipe;
        cell.atomic = access.atomic;
        cell.reader_block = cell.reader_block == self ? 0 : cell.reader_block;
    } else {
        cell.many_readers = cell.many_readers || (cell.reader_block != 0 && cell.reader_block != self);
        cell.read = number;
        cell.reader_block = self;
        cell.reader_pipe = pipe;
    }
}

// Bytes of the 32-byte blocks that ranges touch. Ranges without gaps are one.
uint64_t BlockBytes(const Ranges& ranges) {
    constexpr uint64_t kBlock = 32;
    const bool joined = ranges.pitch == ranges.bytes;
    const uint64_t length = joined ? uint64_t{ranges.bytes} * ranges.count : ranges.bytes;
    uint64_t total = 0;
    for (uint32_t i = 0; i < (joined ? 1 : ranges.count); ++i) {
        const uint64_t from = ranges.first + i * ranges.pitch;
        total += (from + length + kBlock - 1) / kBlock * kBlock - from / kBlock * kBlock;
    }
    return total;
}

// Whether another block has written into the 32-byte piece of an allocation that holds a byte.
bool PieceIsShared(Allocation& allocation, uint64_t offset) {
    constexpr uint64_t kPiece = 32;
    const uint16_t self = static_cast<uint16_t>(CurrentBlock().index + 1);
    const uint64_t begin = offset / kPiece * kPiece;
    for (uint64_t at = begin; at < std::min(begin + kPiece, allocation.bytes); at += allocation.unit()) {
        const uint16_t writer = allocation.CellAt(at).writer_block;
        if (writer != 0 && writer != self) {
            return true;
        }
    }
    return false;
}

}  // namespace

void CheckAndRecordGm(const Call& call, Pipe pipe, const GmAccess& access, uint32_t number) {
    Allocation& allocation = *access.allocation;
    const uint64_t start = access.ranges.first - allocation.address;
    const uint32_t unit = allocation.unit();
    bool quiet = false;
    for (uint32_t i = 0; i < access.ranges.count; ++i) {
        const uint64_t from = start + i * access.ranges.pitch;
        const uint64_t end = from + access.ranges.bytes;
        for (uint64_t offset = from / unit * unit; offset < end;) {
            GmCell* cell = &allocation.CellAt(offset);
            const uint64_t stop = std::min(end, (offset / kPageBytes + 1) * kPageBytes);
            for (; offset < stop; offset += unit, ++cell) {
                quiet = quiet || !CheckCell(call, pipe, access, *cell, offset);
                RecordCell(pipe, access, *cell, number);
            }
        }
        if (access.write) {
            allocation.traffic.shared_pieces += PieceIsShared(allocation, from) + PieceIsShared(allocation, end - 1);
            CheckLinesOfStores(call, pipe, access, from, end);
            if (!allocation.states.empty()) {
                std::fill(allocation.states.begin() + static_cast<int64_t>(from),
                          allocation.states.begin() + static_cast<int64_t>(end), ByteState::Defined);
            }
        }
    }
    const uint64_t bytes = uint64_t{access.ranges.bytes} * access.ranges.count;
    (access.write ? allocation.traffic.written_bytes : allocation.traffic.read_bytes) += bytes;
    allocation.traffic.block_bytes += BlockBytes(access.ranges);
}

void LoadGmStates(uint64_t gm_address, uint32_t ub_address, uint32_t bytes) {
    const Allocation* allocation = Find(gm_address);
    if (allocation == nullptr || allocation->states.empty()) {
        MarkUb(ub_address, bytes, ByteState::Defined);
        return;
    }
    std::memcpy(UbStates() + ub_address, allocation->states.data() + (gm_address - allocation->address), bytes);
}

void RegisterGm(uint64_t address, void* host, uint64_t bytes, const char* name, bool initialised) {
    // A new allocation replaces whatever it overlaps: the owner of the memory has reused it.
    auto it = g_allocations.upper_bound(address);
    if (it != g_allocations.begin()) {
        auto before = std::prev(it);
        it = before->second.address + before->second.bytes > address ? before : it;
    }
    while (it != g_allocations.end() && it->first < address + bytes) {
        it = g_allocations.erase(it);
    }
    Allocation& allocation = g_allocations[address];
    allocation.name = name;
    allocation.address = address;
    allocation.host = static_cast<uint8_t*>(host);
    allocation.bytes = bytes;
    allocation.pages.resize((bytes + kPageBytes - 1) / kPageBytes);
    if (!initialised) {
        allocation.states.assign(bytes, ByteState::Unwritten);
    }
}

bool UnregisterGm(uint64_t address) { return g_allocations.erase(address) != 0; }

void ClearGm() { g_allocations.clear(); }

void NextGmEpoch() { ++g_epoch; }

void ReportUnwrittenOutputs(const std::vector<uint64_t>& arguments) {
    for (const auto& entry : g_allocations) {
        const Allocation& allocation = entry.second;
        const auto named = [&](uint64_t value) {
            return value >= allocation.address && value < allocation.address + allocation.bytes;
        };
        if (allocation.states.empty() || std::none_of(arguments.begin(), arguments.end(), named)) {
            continue;
        }
        const auto first = std::find(allocation.states.begin(), allocation.states.end(), ByteState::Unwritten);
        if (first == allocation.states.end()) {
            continue;
        }
        const auto missing = std::count(first, allocation.states.end(), ByteState::Unwritten);
        const bool all = missing == static_cast<int64_t>(allocation.bytes);
        GlobalReport().Add(Call{"launch", CallSite{"", 0}}, "S", "gm.output_unwritten",
                           Format("%s%lld of the %llu bytes of '%s' are unwritten when the launch has ended, the first "
                                  "is byte %lld; expected a kernel that is given an output to write it",
                                  all ? "all, " : "", static_cast<long long>(missing),
                                  static_cast<unsigned long long>(allocation.bytes), allocation.name.c_str(),
                                  static_cast<long long>(first - allocation.states.begin())),
                           all ? Severity::Error : Severity::Warning);
    }
}

void ResetTraffic() {
    for (auto& entry : g_allocations) {
        entry.second.traffic = GmTraffic{};
    }
}

std::map<std::string, GmTraffic> CollectTraffic() {
    std::map<std::string, GmTraffic> out;
    for (const auto& entry : g_allocations) {
        const GmTraffic& traffic = entry.second.traffic;
        if (traffic.read_bytes + traffic.written_bytes != 0) {
            out[entry.second.name].read_bytes += traffic.read_bytes;
            out[entry.second.name].written_bytes += traffic.written_bytes;
            out[entry.second.name].block_bytes += traffic.block_bytes;
            out[entry.second.name].shared_pieces += traffic.shared_pieces;
        }
    }
    return out;
}

}  // namespace ascend_sim
