// Buffers that the small kernels of these tests share: 64 int32 elements a tile.
#pragma once

#include "kernel_operator.h"

constexpr int32_t kTile = 64;  // elements
constexpr uint32_t kTileBytes = kTile * 4;

struct Buffers {
    AscendC::TBuf<AscendC::TPosition::VECCALC> in_buf, out_buf, work_buf;
    AscendC::LocalTensor<int32_t> in, out, work;
    AscendC::GlobalTensor<int32_t> src, dst;

    __aicore__ inline Buffers(AscendC::TPipe& pipe, GM_ADDR src_gm, GM_ADDR dst_gm, uint32_t elems = 4 * kTile) {
        pipe.InitBuffer(in_buf, kTileBytes);
        pipe.InitBuffer(out_buf, kTileBytes);
        pipe.InitBuffer(work_buf, kTileBytes);
        in = in_buf.Get<int32_t>();
        out = out_buf.Get<int32_t>();
        work = work_buf.Get<int32_t>();
        src.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src_gm), elems);
        dst.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst_gm), elems);
    }
};

// Sets and waits for a flag, unless this is the edge that the test leaves out.
template <AscendC::HardEvent E>
__aicore__ inline void Edge(bool kept) {
    if (kept) {
        AscendC::SetFlag<E>(EVENT_ID0);
        AscendC::WaitFlag<E>(EVENT_ID0);
    }
}

template <pipe_t P>
__aicore__ inline void Barrier(bool kept) {
    if (kept) {
        AscendC::PipeBarrier<P>();
    }
}

template <class T>
__aicore__ inline void Load(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src, uint32_t elems) {
    AscendC::DataCopyPad(dst, src, AscendC::DataCopyExtParams{1, elems * static_cast<uint32_t>(sizeof(T)), 0, 0, 0},
                         AscendC::DataCopyPadExtParams<T>{false, 0, 0, 0});
}

template <class T>
__aicore__ inline void Store(const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint32_t elems) {
    AscendC::DataCopyPad(dst, src, AscendC::DataCopyExtParams{1, elems * static_cast<uint32_t>(sizeof(T)), 0, 0, 0});
}
