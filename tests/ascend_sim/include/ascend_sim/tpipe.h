// TPipe, TBuf and the queues.
#pragma once

#include <cstdint>

#include "ascend_sim/checked_field.h"
#include "ascend_sim/pool.h"
#include "ascend_sim/tensor.h"

namespace AscendC {

namespace detail {

constexpr bool OnUb(TPosition position) {
    return position == TPosition::VECIN || position == TPosition::VECOUT || position == TPosition::VECCALC;
}

// Which pipe fills a buffer that comes from `src`, and which drains one that goes to `dst`.
constexpr HardEvent FullEvent(TPosition src, TPosition dst) {
    if (src == TPosition::GM) {
        return dst == TPosition::GM ? HardEvent::MTE2_MTE3 : HardEvent::MTE2_V;
    }
    return dst == TPosition::GM ? HardEvent::V_MTE3 : HardEvent::V_V;
}
constexpr HardEvent EmptyEvent(TPosition src, TPosition dst) {
    if (src == TPosition::GM) {
        return dst == TPosition::GM ? HardEvent::MTE3_MTE2 : HardEvent::V_MTE2;
    }
    return dst == TPosition::GM ? HardEvent::MTE3_V : HardEvent::V_V;
}
// A queue named by one position: VECIN is filled from global memory, VECOUT drained to it.
constexpr TPosition QueueSource(TPosition position) { return position == TPosition::VECIN ? TPosition::GM : position; }
constexpr TPosition QueueTarget(TPosition position) { return position == TPosition::VECOUT ? TPosition::GM : position; }

}  // namespace detail

template <TPosition Src, TPosition Dst, int32_t Depth, auto Mask = 0>
class TQueBind {
    static_assert(Depth >= 1, "queue depth 0 is not in CANN 8.1");

  public:
    static constexpr bool isTQue = true;
    // VECIN at the source end and VECOUT at the target end stand for global memory beyond them.
    static constexpr TPosition kSource = detail::QueueSource(Src);
    static constexpr TPosition kTarget = detail::QueueTarget(Dst);
    static constexpr HardEvent kFull = detail::FullEvent(kSource, kTarget);
    static constexpr HardEvent kEmpty = detail::EmptyEvent(kSource, kTarget);
    static constexpr TPosition kPosition = Dst;

    template <class T>
    LocalTensor<T> AllocTensor(CallSite site = CallSite::Here()) {
        const Call call{"AllocTensor", site};
        CheckMade(call);
        const uint32_t buffer = ascend_sim::QueueAlloc(call, first_, count_, cursor_, kEmpty);
        return LocalTensor<T>(ascend_sim::BufferView(buffer, kPosition));
    }

    template <class T>
    bool EnQue(const LocalTensor<T>& tensor, CallSite site = CallSite::Here()) {
        return Enter(Call{"EnQue", site}, tensor.view().buffer, kFull);
    }
    template <TPosition UserSrc, TPosition UserDst, class T>
    bool EnQue(const LocalTensor<T>& tensor, CallSite site = CallSite::Here()) {
        return Enter(Call{"EnQue", site}, tensor.view().buffer, detail::FullEvent(UserSrc, UserDst));
    }

    template <class T>
    LocalTensor<T> DeQue(CallSite site = CallSite::Here()) {
        return LocalTensor<T>(ascend_sim::BufferView(Leave(Call{"DeQue", site}, kFull), kPosition));
    }
    template <TPosition UserSrc, TPosition UserDst, class T>
    LocalTensor<T> DeQue(CallSite site = CallSite::Here()) {
        return LocalTensor<T>(
            ascend_sim::BufferView(Leave(Call{"DeQue", site}, detail::FullEvent(UserSrc, UserDst)), kPosition));
    }

    template <class T>
    void FreeTensor(const LocalTensor<T>& tensor, CallSite site = CallSite::Here()) {
        const Call call{"FreeTensor", site};
        CheckMade(call);
        ascend_sim::QueueFree(call, first_, count_, tensor.view().buffer, kEmpty);
    }

    bool VacantInQue() const { return used_ < Depth; }
    bool HasTensorInQue() const { return used_ > 0; }
    int32_t GetTensorCountInQue() const { return used_; }
    bool HasIdleBuffer() const { return ascend_sim::BufferIdle(first_, count_); }

  private:
    friend class TPipe;

    void CheckMade(const Call& call) const {
        if (count_ == 0) {
            ascend_sim::Fail(call, ascend_sim::Pipe::S, "queue.uninitialised", "expected TPipe::InitBuffer before");
        }
    }

    bool Enter(const Call& call, uint32_t buffer, HardEvent event) {
        CheckMade(call);
        if (used_ >= Depth) {
            ascend_sim::Fail(call, ascend_sim::Pipe::S, "queue.full",
                             "the queue holds %d tensors already; expected a DeQue before, its depth is %d", used_,
                             Depth);
        }
        ascend_sim::QueueEnter(call, first_, count_, buffer, event);
        slots_[(head_ + used_) % Depth] = Slot{buffer, event};
        ++used_;
        return true;
    }

    uint32_t Leave(const Call& call, HardEvent event) {
        CheckMade(call);
        if (used_ == 0) {
            ascend_sim::Fail(call, ascend_sim::Pipe::S, "queue.empty",
                             "DeQue of an empty queue; expected an EnQue before");
        }
        const Slot slot = slots_[head_];
        if (slot.event != event) {
            ascend_sim::Fail(call, ascend_sim::Pipe::S, "queue.positions",
                             "EnQue raised %s; expected DeQue to name the same positions, it waits for %s",
                             ascend_sim::EventName(slot.event), ascend_sim::EventName(event));
        }
        head_ = (head_ + 1) % Depth;
        --used_;
        ascend_sim::QueueLeave(call, slot.buffer, event);
        return slot.buffer;
    }

    struct Slot {
        uint32_t buffer;
        HardEvent event;
    };

    uint32_t first_ = 0;
    uint32_t count_ = 0;
    uint32_t cursor_ = 0;
    Slot slots_[Depth] = {};
    int32_t head_ = 0;
    int32_t used_ = 0;
};

template <TPosition Position, int32_t Depth, auto Mask = 0>
class TQue : public TQueBind<Position, Position, Depth, Mask> {
    static_assert(detail::OnUb(Position), "an AIV queue is VECIN, VECOUT or VECCALC");
};

template <TPosition Position = TPosition::VECCALC>
class TBuf {
    static_assert(detail::OnUb(Position), "an AIV buffer is VECIN, VECOUT or VECCALC");

  public:
    static constexpr bool isTQue = false;

    template <class T>
    LocalTensor<T> Get(CallSite site = CallSite::Here()) const {
        const Call call{"TBuf::Get", site};
        return LocalTensor<T>(Part(call, Whole(call).bytes / sizeof(T), sizeof(T), 0));
    }
    // elems: length in elements.
    template <class T>
    LocalTensor<T> Get(uint32_t elems, CallSite site = CallSite::Here()) const {
        return LocalTensor<T>(Part(Call{"TBuf::Get", site}, elems, sizeof(T), 0));
    }
    // elems: length in elements; offset: bytes.
    template <class T>
    LocalTensor<T> GetWithOffset(uint32_t elems, uint32_t offset, CallSite site = CallSite::Here()) const {
        return LocalTensor<T>(Part(Call{"TBuf::GetWithOffset", site}, elems, sizeof(T), offset));
    }
    // On a TBuf these order nothing, as on the device.
    template <class T>
    void EnQue(const LocalTensor<T>&) {}
    template <class T>
    LocalTensor<T> DeQue(CallSite site = CallSite::Here()) {
        return Get<T>(site);
    }
    template <class T>
    LocalTensor<T> AllocTensor(CallSite site = CallSite::Here()) {
        return Get<T>(site);
    }
    template <class T>
    void FreeTensor(const LocalTensor<T>&) {}

  private:
    friend class TPipe;

    ascend_sim::UbView Whole(const Call& call) const {
        if (buffer_ == ascend_sim::kNoBuffer) {
            ascend_sim::Fail(call, ascend_sim::Pipe::S, "buffer.uninitialised", "expected TPipe::InitBuffer before");
        }
        return ascend_sim::BufferView(buffer_, Position);
    }

    ascend_sim::UbView Part(const Call& call, uint64_t elems, uint64_t elem_bytes, uint64_t offset) const {
        ascend_sim::UbView view = Whole(call);
        const uint64_t bytes = elems * elem_bytes;
        if (offset % 32 != 0 || offset + bytes > view.bytes) {
            ascend_sim::Fail(call, ascend_sim::Pipe::S, "bounds.buffer",
                             "%llu elements (%llu bytes) from byte %llu; expected a byte offset that is a multiple of "
                             "32 and an end within the buffer's %u bytes",
                             static_cast<unsigned long long>(elems), static_cast<unsigned long long>(bytes),
                             static_cast<unsigned long long>(offset), view.bytes);
        }
        view.address += static_cast<uint32_t>(offset);
        view.bytes = static_cast<uint32_t>(bytes);
        return view;
    }

    uint32_t buffer_ = ascend_sim::kNoBuffer;
};

class TPipe {
  public:
    TPipe(CallSite site = CallSite::Here());
    ~TPipe();
    TPipe(const TPipe&) = delete;
    TPipe& operator=(const TPipe&) = delete;

    // num: buffers, bytes: of each.
    template <class Queue, class = std::enable_if_t<Queue::isTQue>>
    bool InitBuffer(Queue& queue, ascend_sim::CheckedField<uint8_t> num, ascend_sim::CheckedField<uint32_t> bytes,
                    CallSite site = CallSite::Here()) {
        const Call call{"InitBuffer", site};
        if (queue.count_ != 0) {
            ascend_sim::Complain(
                call, ascend_sim::Pipe::S, "pipe.init_twice",
                "this queue has buffers already; expected one InitBuffer, the first ones are not freed");
        }
        queue.first_ = ascend_sim::AddBuffers(call, num.wide(), bytes.wide(), true);
        queue.count_ = num;
        queue.cursor_ = 0;
        return true;
    }
    template <TPosition Position>
    bool InitBuffer(TBuf<Position>& buffer, ascend_sim::CheckedField<uint32_t> bytes,
                    CallSite site = CallSite::Here()) {
        const Call call{"InitBuffer", site};
        if (buffer.buffer_ != ascend_sim::kNoBuffer) {
            ascend_sim::Complain(call, ascend_sim::Pipe::S, "pipe.init_twice",
                                 "this buffer has memory already; expected one InitBuffer, the first is not freed");
        }
        buffer.buffer_ = ascend_sim::AddBuffers(call, 1, bytes.wide(), false);
        return true;
    }

    template <HardEvent E>
    TEventID AllocEventID(CallSite site = CallSite::Here()) {
        return static_cast<TEventID>(ascend_sim::AllocateEventId(Call{"AllocEventID", site}, E));
    }
    template <HardEvent E>
    void ReleaseEventID(TEventID id, CallSite site = CallSite::Here()) {
        ascend_sim::ReleaseEventId(Call{"ReleaseEventID", site}, E, id);
    }
    template <HardEvent E>
    TEventID FetchEventID(CallSite site = CallSite::Here()) {
        return FetchEventID(E, site);
    }
    TEventID FetchEventID(HardEvent event, CallSite site = CallSite::Here()) {
        return static_cast<TEventID>(ascend_sim::PeekEventId(Call{"FetchEventID", site}, event));
    }

    void Init(CallSite site = CallSite::Here());
    void Reset(CallSite site = CallSite::Here());
    void Destroy(CallSite site = CallSite::Here());

  private:
    bool alive_ = false;
};

}  // namespace AscendC

// The living TPipe.
AscendC::TPipe* GetTPipePtr();

namespace AscendC {

using ::GetTPipePtr;

}  // namespace AscendC
