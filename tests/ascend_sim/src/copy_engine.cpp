#include "ascend_sim/copy_engine.h"

#include <algorithm>
#include <cstring>

#include "atomic.h"
#include "block.h"
#include "report.h"

namespace ascend_sim {

namespace {

constexpr uint32_t kWhole = 32;  // bytes of a UB block

void CheckRange(const Call& call, Pipe pipe, const char* field, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most) {
        Fail(call, pipe, "range.field", "%s is %lld; expected %lld..%lld", field, static_cast<long long>(value),
             static_cast<long long>(least), static_cast<long long>(most));
    }
}

// False: nothing to copy.
bool CheckAligned(const Call& call, Pipe pipe, const AlignedCopy& copy) {
    CheckRange(call, pipe, "blockCount", copy.count, 0, 4095);
    CheckRange(call, pipe, "blockLen (32-byte blocks)", copy.length, 0, 65535);
    CheckRange(call, pipe, "srcStride (32-byte blocks)", copy.src_gap, 0, 65535);
    CheckRange(call, pipe, "dstStride (32-byte blocks)", copy.dst_gap, 0, 65535);
    if (copy.count == 0 || copy.length == 0) {
        NoteNop(call, pipe);
        return false;
    }
    return true;
}

bool CheckPadded(const Call& call, Pipe pipe, const PaddedCopy& copy, uint32_t elem_bytes) {
    CheckRange(call, pipe, "blockCount", copy.count, 0, 4095);
    CheckRange(call, pipe, "blockLen (bytes)", copy.length, 0, copy.max_length);
    const int64_t most_gap = copy.max_length == 65535 ? 65535 : 4294967295;
    CheckRange(call, pipe, "srcStride", copy.src_gap, 0, most_gap);
    CheckRange(call, pipe, "dstStride", copy.dst_gap, 0, most_gap);
    if (copy.length % elem_bytes != 0) {
        Fail(call, pipe, "range.field", "blockLen is %lld bytes; expected a multiple of the element's %u bytes",
             static_cast<long long>(copy.length), elem_bytes);
    }
    if (copy.count == 0 || copy.length == 0) {
        NoteNop(call, pipe);
        return false;
    }
    return true;
}

Ranges Strided(uint64_t first, int64_t bytes, int64_t count, int64_t pitch) {
    return Ranges{first, static_cast<uint32_t>(bytes), static_cast<uint32_t>(count), static_cast<uint64_t>(pitch)};
}

// Bytes on their way to global memory must mean something. Reports the first that do not.
void CheckStored(const Call& call, const Ranges& from) {
    for (uint32_t i = 0; i < from.count; ++i) {
        const uint32_t at = static_cast<uint32_t>(from.first + i * from.pitch);
        if (WorstUb(at, from.bytes) == ByteState::Defined) {
            continue;
        }
        const ByteState* states = UbStates() + at;
        uint32_t byte = 0;
        while (states[byte] == ByteState::Defined) {
            ++byte;
        }
        Complain(call, Pipe::Mte3, states[byte] == ByteState::Padding ? "store.padding" : "store.unwritten",
                 "stores UB byte 0x%05x (byte %u of copy block %u), which %s; expected defined bytes only", at + byte,
                 byte, i, states[byte] == ByteState::Padding ? "is padding of a copy" : "nothing has written");
        return;
    }
}

void Store(Instruction& op, const GmView& dst, const UbView& src, ElementKind kind, uint32_t elem_bytes,
           const Ranges& to, const Ranges& from, uint32_t align) {
    const int atomic = CurrentBlock().atomic;
    op.ReadUb("src", src, from);
    uint8_t* host = op.WriteGm("dst", dst, to, align, atomic != 0);
    op.Issue(uint64_t{from.bytes} * from.count, 0);
    CheckStored(op.call(), from);
    for (uint32_t i = 0; i < from.count; ++i) {
        const uint8_t* bytes = UbMemory() + from.first + i * from.pitch;
        uint8_t* target = host + i * to.pitch;
        if (atomic != 0) {
            CombineAtomic(op.call(), target, bytes, from.bytes, kind, elem_bytes);
        } else {
            std::memcpy(target, bytes, from.bytes);
        }
    }
}

}  // namespace

void CopyIn(const Call& call, const UbView& dst, const GmView& src, uint32_t elem_bytes, const AlignedCopy& copy) {
    if (!CheckAligned(call, Pipe::Mte2, copy)) {
        return;
    }
    Instruction op(call.name, call.site, Pipe::Mte2);
    const int64_t bytes = copy.length * kWhole;
    const Ranges to = Strided(dst.address, bytes, copy.count, bytes + copy.dst_gap * kWhole);
    const Ranges from = Strided(src.address, bytes, copy.count, bytes + copy.src_gap * kWhole);
    op.WriteUb("dst", dst, to);
    const uint8_t* host = op.ReadGm("src", src, from, elem_bytes);
    op.Issue(static_cast<uint64_t>(bytes * copy.count), 0);
    for (uint32_t i = 0; i < to.count; ++i) {
        const uint32_t at = static_cast<uint32_t>(to.first + i * to.pitch);
        std::memcpy(UbMemory() + at, host + i * from.pitch, to.bytes);
        LoadGmStates(from.first + i * from.pitch, at, to.bytes);
    }
}

void CopyOut(const Call& call, const GmView& dst, const UbView& src, ElementKind kind, uint32_t elem_bytes,
             const AlignedCopy& copy) {
    if (!CheckAligned(call, Pipe::Mte3, copy)) {
        return;
    }
    Instruction op(call.name, call.site, Pipe::Mte3);
    const int64_t bytes = copy.length * kWhole;
    Store(op, dst, src, kind, elem_bytes, Strided(dst.address, bytes, copy.count, bytes + copy.dst_gap * kWhole),
          Strided(src.address, bytes, copy.count, bytes + copy.src_gap * kWhole), elem_bytes);
}

void CopyWithin(const Call& call, const UbView& dst, const UbView& src, uint32_t elem_bytes, const AlignedCopy& copy) {
    if (!CheckAligned(call, Pipe::V, copy)) {
        return;
    }
    Instruction op(call.name, call.site, Pipe::V);
    const int64_t bytes = copy.length * kWhole;
    const Ranges to = Strided(dst.address, bytes, copy.count, bytes + copy.dst_gap * kWhole);
    const Ranges from = Strided(src.address, bytes, copy.count, bytes + copy.src_gap * kWhole);
    op.ReadUb("src", src, from);
    op.WriteUb("dst", dst, to);
    const uint64_t span = static_cast<uint64_t>(bytes * copy.count);
    if (copy.src_gap == 0 && copy.dst_gap == 0 && to.first < from.first + span && from.first < to.first + span) {
        Fail(call, Pipe::V, "overlap", "dst UB 0x%05llx overlaps src UB 0x%05llx; expected disjoint operands",
             static_cast<unsigned long long>(to.first), static_cast<unsigned long long>(from.first));
    }
    op.Issue(span / elem_bytes, 256.0 / elem_bytes);
    for (uint32_t i = 0; i < to.count; ++i) {
        const uint64_t target = to.first + i * to.pitch;
        const uint64_t source = from.first + i * from.pitch;
        std::memmove(UbMemory() + target, UbMemory() + source, to.bytes);
        std::memmove(UbStates() + target, UbStates() + source, to.bytes);
    }
}

namespace {

// One block of a padded copy in UB, `whole` bytes long: left padding, data, right padding, filler up to 32 bytes.
void FillPadding(uint32_t at, uint32_t left, uint32_t length, uint32_t right, uint32_t whole, uint32_t elem_bytes,
                 const Padding& padding) {
    uint8_t* bytes = UbMemory() + at;
    const bool padded = left + right != 0;
    for (uint32_t byte = 0; byte < whole; ++byte) {
        if (byte >= left && byte < left + length) {
            continue;
        }
        const uint32_t in_element = byte % elem_bytes;
        const bool asked = byte < left + length + right;
        if (!padded) {
            bytes[byte] = bytes[left + in_element];
        } else {
            bytes[byte] = padding.on ? padding.value[in_element] : static_cast<uint8_t>(0xd1 + byte % 13);
        }
        UbStates()[at + byte] = padded && padding.on && asked ? ByteState::Defined : ByteState::Padding;
    }
}

}  // namespace

void CopyInPadded(const Call& call, const UbView& dst, const GmView& src, uint32_t elem_bytes, const PaddedCopy& copy,
                  const Padding& padding) {
    const int64_t most = kWhole / elem_bytes;
    CheckRange(call, Pipe::Mte2, "leftPadding (elements)", padding.left, 0, most);
    CheckRange(call, Pipe::Mte2, "rightPadding (elements)", padding.right, 0, most);
    uint64_t value = 0;
    std::memcpy(&value, padding.value, elem_bytes);
    if (elem_bytes == 8 && padding.on && value != 0) {
        Fail(call, Pipe::Mte2, "range.field", "paddingValue of an 8-byte type is not 0; expected 0, halves are padded");
    }
    if (!CheckPadded(call, Pipe::Mte2, copy, elem_bytes)) {
        return;
    }
    Instruction op(call.name, call.site, Pipe::Mte2);
    const int64_t left = padding.left * elem_bytes;
    const int64_t right = padding.right * elem_bytes;
    const int64_t whole = (left + copy.length + right + kWhole - 1) / kWhole * kWhole;
    const Ranges to = Strided(dst.address, whole, copy.count, whole + copy.dst_gap * kWhole);
    const Ranges from = Strided(src.address, copy.length, copy.count, copy.length + copy.src_gap);
    op.WriteUb("dst", dst, to);
    const uint8_t* host = op.ReadGm("src", src, from, 1);
    op.Issue(static_cast<uint64_t>(copy.length * copy.count), 0);
    for (uint32_t i = 0; i < to.count; ++i) {
        const uint32_t at = static_cast<uint32_t>(to.first + i * to.pitch);
        std::memcpy(UbMemory() + at + left, host + i * from.pitch, from.bytes);
        LoadGmStates(from.first + i * from.pitch, at + static_cast<uint32_t>(left), from.bytes);
        FillPadding(at, static_cast<uint32_t>(left), from.bytes, static_cast<uint32_t>(right), to.bytes, elem_bytes,
                    padding);
    }
}

void CopyOutPadded(const Call& call, const GmView& dst, const UbView& src, ElementKind kind, uint32_t elem_bytes,
                   const PaddedCopy& copy) {
    if (!CheckPadded(call, Pipe::Mte3, copy, elem_bytes)) {
        return;
    }
    Instruction op(call.name, call.site, Pipe::Mte3);
    const int64_t whole = (copy.length + kWhole - 1) / kWhole * kWhole;
    Store(op, dst, src, kind, elem_bytes, Strided(dst.address, copy.length, copy.count, copy.length + copy.dst_gap),
          Strided(src.address, copy.length, copy.count, whole + copy.src_gap * kWhole), 1);
}

}  // namespace ascend_sim
