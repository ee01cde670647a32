// Lanes of a vector instruction: either a plain count, or repeats of 256 bytes with a mask and strides.
#pragma once

#include <cstdint>
#include <vector>

#include "ascend_sim/instruction.h"
#include "ascend_sim/tensor.h"

namespace ascend_sim {

// Strides in 32-byte blocks: from block to block within a repeat, and from repeat to repeat.
struct Stride {
    uint32_t block = 1;
    uint32_t repeat = 8;
};

struct Lanes {
    bool counted = true;
    uint64_t count = 0;         // counted
    uint64_t mask[2] = {0, 0};  // else: lanes of each repeat
    uint32_t repeats = 0;

    bool Empty() const { return counted ? count == 0 : (repeats == 0 || (mask[0] | mask[1]) == 0); }
};

// Mask state that forms with isSetMask = false inherit; counted forms put it back to normal and full.
void SetVectorMaskState(const Call& call, uint64_t high, uint64_t low);
void SetMaskMode(const Call& call, bool counter);
void ResetVectorMask(const Call& call);

// The forms of the API. `n` is checked to be non-negative; a mask count to fit one repeat of `lane_bytes`.
Lanes CountedLanes(const Call& call, int64_t n, bool set_mask);
Lanes MaskedLanes(const Call& call, uint64_t mask_count, uint32_t repeats, uint32_t lane_bytes, bool set_mask);
Lanes MaskedLanes(const Call& call, const uint64_t mask[2], uint32_t repeats, uint32_t lane_bytes, bool set_mask);

// One vector instruction over lanes. In and Out give packed arrays of count() lanes; Issue checks and counts; the
// caller fills the outputs lane by lane, in order, and Finish stores them.
class LaneOp {
  public:
    static constexpr int kMaxOperands = 4;

    // lane_bytes: size of the widest element, which decides how many lanes make a repeat.
    LaneOp(const char* name, CallSite site, const Lanes& lanes, uint32_t lane_bytes);

    template <class T>
    const T* In(const char* operand, const AscendC::LocalTensor<T>& tensor, Stride stride) {
        return static_cast<const T*>(Add(operand, tensor.view(), sizeof(T), stride, false));
    }
    template <class T>
    T* Out(const char* operand, const AscendC::LocalTensor<T>& tensor, Stride stride) {
        return static_cast<T*>(Add(operand, tensor.view(), sizeof(T), stride, true));
    }

    // A further source that is not read lane by lane, and must be defined.
    void AlsoRead(const char* operand, const UbView& view, uint32_t bytes);

    void Issue(double per_cycle);
    void Finish();

    uint32_t count() const { return count_; }
    const Call& call() const { return instruction_.call(); }
    // Whether output lane i comes from defined bytes only. After Issue.
    bool LaneDefined(uint32_t lane) const;

  private:
    struct Operand {
        const char* name;
        UbView view;
        uint32_t lane_bytes;
        Stride stride;
        bool write;
        std::vector<uint8_t> packed;  // empty when the lanes are contiguous
    };

    void* Add(const char* operand, const UbView& view, uint32_t lane_bytes, Stride stride, bool write);
    bool Contiguous(Stride stride) const { return lanes_.counted && stride.block == 1 && stride.repeat == 8; }
    uint32_t OffsetOf(const Operand& operand, uint32_t lane) const;
    void AddStrided(Operand& operand);
    void CheckOverlap() const;
    void Propagate();

    Instruction instruction_;
    Lanes lanes_;
    uint32_t lanes_per_repeat_;
    uint32_t count_ = 0;
    std::vector<uint32_t> active_;  // lane numbers (repeat * lanes_per_repeat + lane), unless counted
    Operand operands_[kMaxOperands];
    int operand_count_ = 0;
};

// Remembers the first defined lane where something noteworthy happened.
class LaneTrouble {
  public:
    void Note(const LaneOp& op, uint32_t lane) {
        if (lane_ == kNone && op.LaneDefined(lane)) {
            lane_ = lane;
        }
    }
    bool hit() const { return lane_ != kNone; }
    uint32_t lane() const { return lane_; }

  private:
    static constexpr uint32_t kNone = 0xffffffffu;
    uint32_t lane_ = kNone;
};

bool ReportsOverflow();
bool ReportsSpecialHalf();

}  // namespace ascend_sim
