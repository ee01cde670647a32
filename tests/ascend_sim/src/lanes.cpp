#include "ascend_sim/lanes.h"

#include <algorithm>
#include <cstring>

#include "ascend_sim/compare_select.h"
#include "block.h"
#include "config.h"
#include "report.h"

namespace ascend_sim {

namespace {

constexpr uint32_t kRepeatBytes = 256;

}  // namespace

bool ReportsOverflow() { return GlobalConfig().report_overflow; }

bool ReportsSpecialHalf() { return GlobalConfig().report_special_half; }

LaneOp::LaneOp(const char* name, CallSite site, const Lanes& lanes, uint32_t lane_bytes)
    : instruction_(name, site, Pipe::V), lanes_(lanes), lanes_per_repeat_(kRepeatBytes / std::max(lane_bytes, 2u)) {
    if (lanes.counted) {
        count_ = static_cast<uint32_t>(std::min<uint64_t>(lanes.count, 0x7fffffffu));
        return;
    }
    for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
        for (uint32_t lane = 0; lane < lanes_per_repeat_; ++lane) {
            if ((lanes.mask[lane / 64] >> (lane % 64) & 1) != 0) {
                active_.push_back(repeat * lanes_per_repeat_ + lane);
            }
        }
    }
    count_ = static_cast<uint32_t>(active_.size());
}

uint32_t LaneOp::OffsetOf(const Operand& operand, uint32_t lane) const {
    const uint32_t number = lanes_.counted ? lane : active_[lane];
    const uint32_t per_block = kUbBlock / operand.lane_bytes;
    const uint32_t in_repeat = number % lanes_per_repeat_;
    return (number / lanes_per_repeat_ * operand.stride.repeat + in_repeat / per_block * operand.stride.block) *
               kUbBlock +
           in_repeat % per_block * operand.lane_bytes;
}

void* LaneOp::Add(const char* name, const UbView& view, uint32_t lane_bytes, Stride stride, bool write) {
    Operand& operand = operands_[operand_count_++];
    operand = Operand{name, view, lane_bytes, stride, write, {}};
    if (!Contiguous(stride)) {
        AddStrided(operand);
        return operand.packed.data();
    }
    const uint64_t bytes = uint64_t{count_} * lane_bytes;
    if (bytes > view.bytes) {
        Fail(call(), Pipe::V, "bounds.ub",
             "%s needs %llu bytes (%u elements) from UB 0x%05x; expected at most the %u bytes of the tensor", name,
             static_cast<unsigned long long>(bytes), count_, view.address, view.bytes);
    }
    const Ranges ranges{view.address, static_cast<uint32_t>(bytes), 1, 0};
    write ? instruction_.WriteUb(name, view, ranges) : instruction_.ReadUb(name, view, ranges);
    return UbMemory() + view.address;
}

void LaneOp::AddStrided(Operand& operand) {
    if (operand.view.address % kUbBlock != 0) {
        Fail(call(), Pipe::V, "align.ub", "%s starts at UB 0x%05x; expected a multiple of 32 bytes", operand.name,
             operand.view.address);
    }
    operand.packed.resize(uint64_t{count_} * operand.lane_bytes);
    uint32_t previous = ~0u;
    for (uint32_t lane = 0; lane < count_; ++lane) {
        const uint32_t offset = OffsetOf(operand, lane);
        if (offset + operand.lane_bytes > operand.view.bytes) {
            Fail(
                call(), Pipe::V, "bounds.ub",
                "%s: lane %u lies %u bytes from UB 0x%05x by its strides; expected an end within the tensor's %u bytes",
                operand.name, lane, offset, operand.view.address, operand.view.bytes);
        }
        if (offset / kUbBlock != previous) {
            previous = offset / kUbBlock;
            const Ranges block{operand.view.address + previous * kUbBlock, 1, 1, 0};
            operand.write ? instruction_.WriteUb(operand.name, operand.view, block)
                          : instruction_.ReadUb(operand.name, operand.view, block);
        }
        if (!operand.write) {
            std::memcpy(operand.packed.data() + lane * operand.lane_bytes, UbMemory() + operand.view.address + offset,
                        operand.lane_bytes);
        }
    }
}

void LaneOp::AlsoRead(const char* operand, const UbView& view, uint32_t bytes) {
    instruction_.ReadUb(operand, view, Ranges{view.address, bytes, 1, 0});
    if (WorstUb(view.address, bytes) != ByteState::Defined) {
        Complain(call(), Pipe::V, "read.unwritten",
                 "%s has undefined bytes among UB 0x%05x..0x%05x, which decide the result; expected defined bytes",
                 operand, view.address, view.address + bytes);
    }
}

void CheckBits(const Call& call, const char* operand, const UbView& view, uint64_t lanes) {
    if ((lanes + 7) / 8 > view.bytes) {
        Fail(call, Pipe::V, "bounds.ub", "%s needs %llu bytes for one bit per element; expected at most its %u bytes",
             operand, static_cast<unsigned long long>((lanes + 7) / 8), view.bytes);
    }
}

void LaneOp::CheckOverlap() const {
    for (int d = 0; d < operand_count_; ++d) {
        const Operand& dst = operands_[d];
        for (int s = 0; s < operand_count_ && dst.write; ++s) {
            const Operand& src = operands_[s];
            if (src.write || !dst.packed.empty() || !src.packed.empty()) {
                continue;
            }
            const uint64_t dst_end = dst.view.address + uint64_t{count_} * dst.lane_bytes;
            const uint64_t src_end = src.view.address + uint64_t{count_} * src.lane_bytes;
            if (dst.view.address >= src_end || src.view.address >= dst_end) {
                continue;
            }
            if (dst.view.address != src.view.address || dst.lane_bytes > src.lane_bytes) {
                Fail(call(), Pipe::V, "overlap",
                     "%s at UB 0x%05x..0x%05llx overlaps %s at UB 0x%05x..0x%05llx; expected the same start and no "
                     "widening, or disjoint operands",
                     dst.name, dst.view.address, static_cast<unsigned long long>(dst_end), src.name, src.view.address,
                     static_cast<unsigned long long>(src_end));
            }
        }
    }
}

void LaneOp::Propagate() {
    const ByteState* states = UbStates();
    for (int d = 0; d < operand_count_; ++d) {
        const Operand& dst = operands_[d];
        if (!dst.write) {
            continue;
        }
        const Operand* sources[kMaxOperands] = {};
        bool contiguous = dst.packed.empty();
        int found = 0;
        for (int s = 0; s < operand_count_; ++s) {
            if (!operands_[s].write) {
                sources[found++] = &operands_[s];
                contiguous = contiguous && operands_[s].packed.empty();
            }
        }
        if (contiguous && found <= 2) {
            const auto run = [](const Operand* source) {
                return source == nullptr ? LaneRun{0, 0} : LaneRun{source->view.address, source->lane_bytes};
            };
            PropagateLanes(LaneRun{dst.view.address, dst.lane_bytes}, run(sources[0]), run(sources[1]), count_);
            continue;
        }
        std::vector<ByteState> worst(count_, ByteState::Defined);
        for (int s = 0; s < found; ++s) {
            for (uint32_t lane = 0; lane < count_; ++lane) {
                const uint32_t at = sources[s]->view.address + OffsetOf(*sources[s], lane);
                for (uint32_t byte = 0; byte < sources[s]->lane_bytes; ++byte) {
                    worst[lane] = std::max(worst[lane], states[at + byte]);
                }
            }
        }
        for (uint32_t lane = 0; lane < count_; ++lane) {
            MarkUb(dst.view.address + OffsetOf(dst, lane), dst.lane_bytes, worst[lane]);
        }
    }
}

void LaneOp::Issue(double per_cycle) {
    CheckOverlap();
    instruction_.Issue(count_, per_cycle);
    Propagate();
}

bool LaneOp::LaneDefined(uint32_t lane) const {
    for (int d = 0; d < operand_count_; ++d) {
        const Operand& operand = operands_[d];
        if (operand.write) {
            const uint32_t at =
                operand.view.address + (operand.packed.empty() ? lane * operand.lane_bytes : OffsetOf(operand, lane));
            return WorstUb(at, operand.lane_bytes) == ByteState::Defined;
        }
    }
    return true;
}

void LaneOp::Finish() {
    for (int d = 0; d < operand_count_; ++d) {
        const Operand& operand = operands_[d];
        if (!operand.write || operand.packed.empty()) {
            continue;
        }
        for (uint32_t lane = 0; lane < count_; ++lane) {
            std::memcpy(UbMemory() + operand.view.address + OffsetOf(operand, lane),
                        operand.packed.data() + lane * operand.lane_bytes, operand.lane_bytes);
        }
    }
}

}  // namespace ascend_sim
