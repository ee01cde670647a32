#include "ascend_sim/gather_engine.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ascend_sim/lanes.h"
#include "block.h"
#include "report.h"

namespace ascend_sim {

namespace {

void CopyElement(uint32_t dst, uint32_t src, uint32_t bytes) {
    std::memcpy(UbMemory() + dst, UbMemory() + src, bytes);
    std::memcpy(UbStates() + dst, UbStates() + src, bytes);
}

uint32_t LoadOffset(const Call& call, const UbView& offset, uint32_t index) {
    const uint32_t at = offset.address + index * 4;
    if (WorstUb(at, 4) != ByteState::Defined) {
        Fail(call, Pipe::V, "gather.offset", "offset %u (UB 0x%05x) is undefined; expected a defined byte offset",
             index, at);
    }
    uint32_t value;
    std::memcpy(&value, UbMemory() + at, 4);
    return value;
}

// What an instruction reads of its source, as the smallest range around it.
struct Span {
    uint64_t first = ~uint64_t{0};
    uint64_t end = 0;

    void Cover(uint64_t address, uint64_t bytes) {
        first = std::min(first, address);
        end = std::max(end, address + bytes);
    }
};

void CheckDisjoint(const Call& call, const Span& dst, const Span& src) {
    if (dst.first < src.end && src.first < dst.end) {
        Fail(call, Pipe::V, "overlap",
             "dst UB 0x%05llx..0x%05llx overlaps src UB 0x%05llx..0x%05llx; expected disjoint operands",
             static_cast<unsigned long long>(dst.first), static_cast<unsigned long long>(dst.end),
             static_cast<unsigned long long>(src.first), static_cast<unsigned long long>(src.end));
    }
}

Ranges Whole(const UbView& view, uint64_t bytes) { return Ranges{view.address, static_cast<uint32_t>(bytes), 1, 0}; }

}  // namespace

void GatherElements(const Call& call, const UbView& dst, const UbView& src, const UbView& offset, uint32_t base,
                    uint32_t count, uint32_t elem_bytes) {
    if (count == 0) {
        return NoteNop(call, Pipe::V);
    }
    const uint32_t most = 65536 / elem_bytes - 1;
    if (count > most) {
        Fail(call, Pipe::V, "range.count", "count %u; expected at most %u, the repeat count wraps beyond", count, most);
    }
    Instruction op(call.name, call.site, Pipe::V);
    op.ReadUb("offset", offset, Whole(offset, uint64_t{count} * 4));
    op.WriteUb("dst", dst, Whole(dst, uint64_t{count} * elem_bytes));
    std::vector<uint32_t> places(count);
    Span read;
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t place = uint64_t{base} + LoadOffset(call, offset, i);
        if (place % elem_bytes != 0 || place + elem_bytes > src.bytes) {
            Fail(
                call, Pipe::V, "gather.offset",
                "offset %u leads to byte %llu of src; expected a multiple of %u that ends within its %u bytes (offsets "
                "are in bytes)",
                i, static_cast<unsigned long long>(place), elem_bytes, src.bytes);
        }
        places[i] = src.address + static_cast<uint32_t>(place);
        read.Cover(places[i], elem_bytes);
        op.ReadUb("src", src, Ranges{places[i] / kUbBlock * kUbBlock, 1, 1, 0});
    }
    CheckDisjoint(call, Span{dst.address, dst.address + uint64_t{count} * elem_bytes}, read);
    op.Issue(count, 5);
    for (uint32_t i = 0; i < count; ++i) {
        CopyElement(dst.address + i * elem_bytes, places[i], elem_bytes);
    }
}

void GatherBlocks(const Call& call, const UbView& dst, const UbView& src, const UbView& offset, uint32_t repeat,
                  int64_t block_stride, int64_t repeat_stride, uint32_t elem_bytes) {
    if (repeat == 0) {
        return NoteNop(call, Pipe::V);
    }
    Instruction op(call.name, call.site, Pipe::V);
    op.ReadUb("offset", offset, Whole(offset, uint64_t{repeat} * 32));
    std::vector<std::pair<uint32_t, uint32_t>> moves;
    Span read;
    Span written;
    for (uint32_t i = 0; i < repeat * 8; ++i) {
        const uint32_t place = LoadOffset(call, offset, i);
        if (place % kUbBlock != 0 || uint64_t{place} + kUbBlock > src.bytes) {
            Fail(call, Pipe::V, "gather.offset",
                 "offset %u is byte %u of src; expected a multiple of 32 with a whole block within its %u bytes", i,
                 place, src.bytes);
        }
        const uint64_t to = dst.address + ((i / 8) * repeat_stride + (i % 8) * block_stride) * kUbBlock;
        op.ReadUb("src", src, Ranges{src.address + place, kUbBlock, 1, 0});
        op.WriteUb("dst", dst, Ranges{to, kUbBlock, 1, 0});
        read.Cover(src.address + place, kUbBlock);
        written.Cover(to, kUbBlock);
        moves.emplace_back(static_cast<uint32_t>(to), src.address + place);
    }
    CheckDisjoint(call, written, read);
    op.Issue(uint64_t{repeat} * 256 / elem_bytes, elem_bytes == 2 ? 42 : 21);
    for (const auto& [to, from] : moves) {
        CopyElement(to, from, kUbBlock);
    }
}

namespace {

// Places of the source elements that a masked gather looks at, in order, with the bit number of each.
struct Candidate {
    uint32_t place;
    uint32_t repeat;
    uint32_t index;
};

std::vector<Candidate> Candidates(const Call& call, const UbView& src, const MaskedGather& gather,
                                  uint32_t elem_bytes) {
    if (gather.repeats < 0 || gather.repeats > 65535 || gather.src_block_stride < 0 || gather.src_block_stride > 255 ||
        gather.src_repeat_stride < 0 || gather.src_repeat_stride > 65535) {
        Fail(call, Pipe::V, "range.field",
             "repeats %lld and strides %lld, %lld; expected 0..65535, 0..255 and 0..65535",
             static_cast<long long>(gather.repeats), static_cast<long long>(gather.src_block_stride),
             static_cast<long long>(gather.src_repeat_stride));
    }
    const uint32_t per_block = kUbBlock / elem_bytes;
    const uint32_t each = gather.counter ? gather.mask : 256 / elem_bytes;
    std::vector<Candidate> found;
    for (uint32_t repeat = 0; repeat < gather.repeats; ++repeat) {
        for (uint32_t i = 0; i < each; ++i) {
            const uint64_t place = (repeat * static_cast<uint64_t>(gather.src_repeat_stride) +
                                    i / per_block * static_cast<uint64_t>(gather.src_block_stride)) *
                                       kUbBlock +
                                   i % per_block * elem_bytes;
            if (place + elem_bytes > src.bytes) {
                Fail(call, Pipe::V, "bounds.ub",
                     "repeat %u reads byte %llu of src; expected an end within its %u bytes", repeat,
                     static_cast<unsigned long long>(place), src.bytes);
            }
            found.push_back(Candidate{src.address + static_cast<uint32_t>(place), repeat, i});
        }
    }
    return found;
}

template <class Keep>
uint64_t GatherKept(Instruction& op, const UbView& dst, const UbView& src, const std::vector<Candidate>& candidates,
                    uint32_t elem_bytes, Keep keep) {
    std::vector<uint32_t> kept;
    uint32_t previous = ~0u;
    Span read;
    for (const Candidate& candidate : candidates) {
        read.Cover(candidate.place, elem_bytes);
        if (candidate.place / kUbBlock != previous) {
            previous = candidate.place / kUbBlock;
            op.ReadUb("src", src, Ranges{previous * kUbBlock, 1, 1, 0});
        }
        if (keep(candidate)) {
            kept.push_back(candidate.place);
        }
    }
    if (dst.address != src.address) {
        CheckDisjoint(op.call(), Span{dst.address, dst.address + kept.size() * elem_bytes}, read);
    }
    if (!kept.empty()) {
        op.WriteUb("dst", dst, Whole(dst, kept.size() * elem_bytes));
    }
    op.Issue(candidates.size(), elem_bytes == 2 ? 64 : 32);
    // In place, a kept element never moves up, so going forward is safe.
    for (size_t i = 0; i < kept.size(); ++i) {
        CopyElement(dst.address + static_cast<uint32_t>(i) * elem_bytes, kept[i], elem_bytes);
    }
    SetMaskMode(op.call(), false);
    ResetVectorMask(op.call());
    return kept.size();
}

}  // namespace

uint64_t GatherByPattern(const Call& call, const UbView& dst, const UbView& src, uint32_t pattern,
                         const MaskedGather& gather, uint32_t elem_bytes) {
    if (pattern < 1 || pattern > 7) {
        Fail(call, Pipe::V, "gather.pattern", "pattern %u; expected 1..7", pattern);
    }
    const std::vector<Candidate> candidates = Candidates(call, src, gather, elem_bytes);
    if (candidates.empty()) {
        NoteNop(call, Pipe::V);
        return 0;
    }
    Instruction op(call.name, call.site, Pipe::V);
    return GatherKept(op, dst, src, candidates, elem_bytes, [pattern](const Candidate& candidate) {
        if (pattern == 7) {
            return true;
        }
        return pattern <= 2 ? candidate.index % 2 == pattern - 1 : candidate.index % 4 == pattern - 3;
    });
}

uint64_t GatherByBits(const Call& call, const UbView& dst, const UbView& src, const UbView& bits,
                      const MaskedGather& gather, uint32_t elem_bytes) {
    const std::vector<Candidate> candidates = Candidates(call, src, gather, elem_bytes);
    if (candidates.empty()) {
        NoteNop(call, Pipe::V);
        return 0;
    }
    const uint32_t each = gather.counter ? gather.mask : 256 / elem_bytes;
    Instruction op(call.name, call.site, Pipe::V);
    for (int64_t repeat = 0; repeat < gather.repeats; ++repeat) {
        const Ranges used{bits.address + static_cast<uint64_t>(repeat * gather.bits_repeat_stride) * kUbBlock,
                          (each + 7) / 8, 1, 0};
        op.ReadUb("bits", bits, used);
        if (WorstUb(static_cast<uint32_t>(used.first), used.bytes) != ByteState::Defined) {
            Fail(call, Pipe::V, "read.unwritten", "the bit tensor is undefined at repeat %lld; expected defined bits",
                 static_cast<long long>(repeat));
        }
    }
    return GatherKept(op, dst, src, candidates, elem_bytes, [&](const Candidate& candidate) {
        const uint32_t at =
            bits.address + candidate.repeat * static_cast<uint32_t>(gather.bits_repeat_stride) * kUbBlock;
        return (UbMemory()[at + candidate.index / 8] >> (candidate.index % 8) & 1) != 0;
    });
}

void BroadcastToBlocks(const Call& call, const UbView& dst, const UbView& src, uint32_t repeat, int64_t block_stride,
                       int64_t repeat_stride, uint32_t elem_bytes) {
    if (repeat == 0) {
        return NoteNop(call, Pipe::V);
    }
    Instruction op(call.name, call.site, Pipe::V);
    op.ReadUb("src", src, Whole(src, uint64_t{repeat} * 8 * elem_bytes));
    std::vector<uint32_t> places;
    Span written;
    for (uint32_t i = 0; i < repeat * 8; ++i) {
        const uint64_t to = dst.address + ((i / 8) * repeat_stride + (i % 8) * block_stride) * kUbBlock;
        op.WriteUb("dst", dst, Ranges{to, kUbBlock, 1, 0});
        written.Cover(to, kUbBlock);
        places.push_back(static_cast<uint32_t>(to));
    }
    CheckDisjoint(call, written, Span{src.address, src.address + uint64_t{repeat} * 8 * elem_bytes});
    op.Issue(uint64_t{repeat} * 8, 8);
    for (uint32_t i = 0; i < repeat * 8; ++i) {
        for (uint32_t at = 0; at < kUbBlock; at += elem_bytes) {
            CopyElement(places[i] + at, src.address + i * elem_bytes, elem_bytes);
        }
    }
}

}  // namespace ascend_sim
