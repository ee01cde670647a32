#include "device/elements.h"
#include "device/iota.h"
#include "device/memory.h"
#include "device/npu_kind.h"
#include "device/pipes.h"
#include "device/preload.h"
#include "kernel_operator.h"
#include "ops/apply_rotary/apply_rotary_index.h"

namespace dsv4::kernel {

using AscendC::HardEvent;
using AscendC::TBuf;
using AscendC::TPosition;

constexpr uint32_t kRepeatFloats = 64;  // what one repeat of an instruction computes

// Each block rotates a share of the heads of q, then of kv, in tiles of two buffers in turn. In a tile
//     x' = x * cos + neighbour(x) * (sign * sin)
// where neighbour() swaps the two features of each pair and sign is -1, +1, -1, ..: both products and the sum are
// rounded to float32, as on the CPU.
class ApplyRotary {
  public:
    __aicore__ inline ApplyRotary(AscendC::TPipe* pipe, GM_ADDR cos, GM_ADDR sin, const ApplyRotaryParams& p)
        : p_(p), cos_(cos), sin_(sin) {
        dim_ = static_cast<uint32_t>(p.rope_dim);
        pitch_ = static_cast<uint32_t>(rotary_pitch_elems(p.rope_dim));
        pipe->InitBuffer(stored_buffer_, 2 * kRotaryTileElems * sizeof(float));
        pipe->InitBuffer(row_buffer_, 4 * kRotaryTileElems * sizeof(float));
        pipe->InitBuffer(float_buffer_, 4 * kRotaryTileElems * sizeof(float));
        pipe->InitBuffer(sign_buffer_, kRotaryTileElems * sizeof(float));
        pipe->InitBuffer(offset_buffer_, kRotaryTileElems * sizeof(int32_t));
        pipe->InitBuffer(shift_buffer_, kRotaryTileElems * sizeof(int32_t));
    }

    __aicore__ inline void run(GM_ADDR q, GM_ADDR kv) {
        make_signs_and_offsets();
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
        rotate_operand(q, p_.q);
        rotate_operand(kv, p_.kv);
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        AscendC::WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
    }

  private:
    // Both begin anew with every pair, so that one vector of each serves every row of a tile.
    __aicore__ inline void make_signs_and_offsets() {
        constexpr int32_t elems = static_cast<int32_t>(kRotaryTileElems);
        const LocalTensor<int32_t> offsets = offset_buffer_.Get<int32_t>();
        const LocalTensor<int32_t> signs = shift_buffer_.Get<int32_t>();
        fill_iota(offsets, elems);
        AscendC::ShiftRight(signs, offsets, int32_t{1}, elems);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(signs, signs, int32_t{2}, elems);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(signs, offsets, signs, elems);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(signs, signs, int32_t{2}, elems);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(signs, signs, int32_t{-1}, elems);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(offsets, offsets, signs, elems);
        AscendC::Cast(sign_buffer_.Get<float>(), signs, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(elems));
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Muls(offsets, offsets, static_cast<int32_t>(sizeof(float)), elems);
        AscendC::Muls(sign_buffer_.Get<float>(), sign_buffer_.Get<float>(), p_.inverse != 0 ? -1.0f : 1.0f, elems);
    }

    __aicore__ inline void rotate_operand(GM_ADDR address, const RotaryOperand& x) {
        if (x.element_type == kFloat32) {
            rotate_heads<float>(address, x);
        } else if (x.element_type == kFloat16) {
            rotate_heads<half>(address, x);
        } else {
            rotate_heads<bfloat16_t>(address, x);
        }
    }

    template <typename x_t>
    __aicore__ inline void rotate_heads(GM_ADDR address, const RotaryOperand& x) {
        const BlockShare share =
            block_share(p_.num_tokens * x.num_heads, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        if (share.begin == share.end) {
            return;
        }
        const GlobalTensor<x_t> features = global<x_t>(
            address, static_cast<uint64_t>(rotary_offset_elems(p_.num_tokens - 1, x.num_heads - 1, x, 0)));
        for (int64_t item = share.begin; item < share.end;) {
            const RotaryTile tile = rotary_tile(item, share.end, x, p_.rope_dim);
            const event_t stored = turn_ == 0 ? EVENT_ID0 : EVENT_ID1;
            AscendC::WaitFlag<HardEvent::MTE3_MTE2>(stored);
            rotate_tile(features, tile, x);
            AscendC::SetFlag<HardEvent::MTE3_MTE2>(stored);
            turn_ = 1 - turn_;
            item += tile.tokens * tile.heads;
        }
    }

    template <typename x_t>
    __aicore__ inline void rotate_tile(const GlobalTensor<x_t>& memory, const RotaryTile& tile,
                                       const RotaryOperand& x) {
        const LocalTensor<x_t> stored = stored_tile<x_t>();
        const LocalTensor<float> neighbours = float_tile(kNeighbours);
        const uint32_t tokens = static_cast<uint32_t>(tile.tokens);
        const uint32_t heads = static_cast<uint32_t>(tile.heads);
        const uint32_t elems = tokens * heads * pitch_;
        move_features<false>(memory, stored, tile, x);
        load_rows_of(tile.token, tokens);
        order<HardEvent::MTE2_V>();
        // What the last tile, or the making of signs and offsets, left on V is done.
        AscendC::PipeBarrier<PIPE_V>();
        const LocalTensor<float> features = as_float(stored, elems);
        swap_pairs(neighbours, stored, elems);
        const LocalTensor<float> cos = make_cos(tokens);
        make_signed_sin(tokens);
        AscendC::PipeBarrier<PIPE_V>();
        multiply_rows(features, cos, tokens, heads);
        multiply_rows(neighbours, float_tile(kSin), tokens, heads);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(features, features, neighbours, static_cast<int32_t>(elems));
        if constexpr (!kIsFloat<x_t>) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Cast(stored, features, AscendC::RoundMode::CAST_RINT, elems);
        }
        order<HardEvent::V_MTE3>();
        move_features<true>(memory, stored, tile, x);
    }

    // The tile as float32; a float32 tile is its own.
    template <typename x_t>
    __aicore__ inline LocalTensor<float> as_float(const LocalTensor<x_t>& stored, uint32_t elems) {
        if constexpr (kIsFloat<x_t>) {
            return stored;
        } else {
            AscendC::Cast(float_tile(kFeatures), stored, AscendC::RoundMode::CAST_NONE, elems);
            return float_tile(kFeatures);
        }
    }

    // Each feature's neighbour in its pair. The two halves of a 32-bit word change places by shifts, at many times the
    // rate of a Gather.
    template <typename x_t>
    __aicore__ inline void swap_pairs(const LocalTensor<float>& neighbours, const LocalTensor<x_t>& stored,
                                      uint32_t elems) {
        if constexpr (kIsFloat<x_t>) {
            gather_elements(neighbours, stored, offset_buffer_.Get<uint32_t>(), 0, elems);
        } else {
            const int32_t words = static_cast<int32_t>(elems / 2);
            const LocalTensor<uint32_t> pairs = stored.template ReinterpretCast<uint32_t>();
            const LocalTensor<uint32_t> first = shift_buffer_.Get<uint32_t>();
            const LocalTensor<uint32_t> second = first[kRotaryTileElems / 2];
            AscendC::ShiftRight(first, pairs, uint32_t{16}, words);
            AscendC::ShiftLeft(second, pairs, uint32_t{16}, words);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Or(first.ReinterpretCast<uint16_t>(), first.ReinterpretCast<uint16_t>(),
                        second.ReinterpretCast<uint16_t>(), static_cast<int32_t>(elems));
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Cast(neighbours, first.template ReinterpretCast<x_t>(), AscendC::RoundMode::CAST_NONE, elems);
        }
    }

    // x *= rows, where all heads of a token share a row.
    __aicore__ inline void multiply_rows(const LocalTensor<float>& x, const LocalTensor<float>& rows, uint32_t tokens,
                                         uint32_t heads) {
        if (heads == 1) {
            AscendC::Mul(x, x, rows, static_cast<int32_t>(tokens * pitch_));
            return;
        }
        for (uint32_t token = 0; token < tokens; ++token) {
            for (uint32_t column = 0; column < pitch_; column += kRepeatFloats) {
                const uint32_t lanes = min_of<uint32_t>(kRepeatFloats, pitch_ - column);
                multiply_rows_by(x[token * heads * pitch_ + column], rows[token * pitch_ + column], lanes, heads,
                                 pitch_);
            }
        }
    }

    // Moves the last D features of a tile's heads, to UB or back.
    template <bool back, typename x_t>
    __aicore__ inline void move_features(const GlobalTensor<x_t>& memory, const LocalTensor<x_t>& stored,
                                         const RotaryTile& tile, const RotaryOperand& x) {
        const uint32_t heads = static_cast<uint32_t>(tile.heads);
        if (heads == 1 || tile.tokens == 1 || x.token_stride == x.num_heads * x.head_stride) {
            move_rows<back>(memory[rotary_offset_elems(tile.token, tile.head, x, p_.rope_dim)], stored,
                            static_cast<uint32_t>(tile.tokens) * heads, heads == 1 ? x.token_stride : x.head_stride);
            return;
        }
        for (uint32_t token = 0; token < tile.tokens; ++token) {
            move_rows<back>(memory[rotary_offset_elems(tile.token + token, 0, x, p_.rope_dim)],
                            stored[token * heads * pitch_], heads, x.head_stride);
        }
    }

    template <bool back, typename x_t>
    __aicore__ inline void move_rows(const GlobalTensor<x_t>& memory, const LocalTensor<x_t>& stored, uint32_t rows,
                                     int64_t stride_elems) {
        if constexpr (back) {
            store_strided_rows(memory, stored, rows, dim_, stride_elems, pitch_);
        } else {
            load_strided_rows(stored, memory, rows, dim_, stride_elems, pitch_);
        }
    }

    // Rows of cos and sin, as they are stored.
    __aicore__ inline void load_rows_of(int64_t token, uint32_t tokens) {
        if (p_.table_type == kFloat32) {
            load_table(row_tile<float>(0), cos_, token, tokens, p_.cos_stride);
            load_table(row_tile<float>(1), sin_, token, tokens, p_.sin_stride);
        } else {
            load_table(row_tile<uint16_t>(0), cos_, token, tokens, p_.cos_stride);
            load_table(row_tile<uint16_t>(1), sin_, token, tokens, p_.sin_stride);
        }
    }

    template <typename T>
    __aicore__ inline void load_table(const LocalTensor<T>& rows, GM_ADDR table, int64_t token, uint32_t tokens,
                                      int64_t stride_elems) {
        const uint64_t elems = static_cast<uint64_t>((p_.num_tokens - 1) * stride_elems + p_.rope_dim);
        load_strided_rows(rows, global<T>(table, elems)[static_cast<uint64_t>(token * stride_elems)], tokens, dim_,
                          stride_elems, pitch_);
    }

    __aicore__ inline LocalTensor<float> make_cos(uint32_t tokens) {
        if (p_.table_type == kFloat32) {
            return row_tile<float>(0);
        }
        widen(float_tile(kCos), 0, tokens);
        return float_tile(kCos);
    }

    __aicore__ inline void make_signed_sin(uint32_t tokens) {
        const LocalTensor<float> sin = float_tile(kSin);
        const LocalTensor<float> signs = sign_buffer_.Get<float>();
        const int32_t elems = static_cast<int32_t>(tokens * pitch_);
        if (p_.table_type == kFloat32) {
            AscendC::Mul(sin, row_tile<float>(1), signs, elems);
            return;
        }
        widen(sin, 1, tokens);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(sin, sin, signs, elems);
    }

    __aicore__ inline void widen(const LocalTensor<float>& to, uint32_t table, uint32_t tokens) {
        if (p_.table_type == kFloat16) {
            AscendC::Cast(to, row_tile<half>(table), AscendC::RoundMode::CAST_NONE, tokens * pitch_);
        } else {
            AscendC::Cast(to, row_tile<bfloat16_t>(table), AscendC::RoundMode::CAST_NONE, tokens * pitch_);
        }
    }

    template <typename T>
    __aicore__ inline LocalTensor<T> stored_tile() {
        return stored_buffer_.Get<float>()[turn_ * kRotaryTileElems].template ReinterpretCast<T>();
    }

    // table: 0 cos, 1 sin
    template <typename T>
    __aicore__ inline LocalTensor<T> row_tile(uint32_t table) {
        return row_buffer_.Get<float>()[(turn_ * 2 + table) * kRotaryTileElems].template ReinterpretCast<T>();
    }

    static constexpr uint32_t kFeatures = 0;
    static constexpr uint32_t kNeighbours = 1;
    static constexpr uint32_t kCos = 2;
    static constexpr uint32_t kSin = 3;

    __aicore__ inline LocalTensor<float> float_tile(uint32_t which) {
        return float_buffer_.Get<float>()[which * kRotaryTileElems];
    }

    const ApplyRotaryParams& p_;
    GM_ADDR cos_;
    GM_ADDR sin_;
    TBuf<TPosition::VECCALC> stored_buffer_, row_buffer_, float_buffer_, sign_buffer_, offset_buffer_, shift_buffer_;
    uint32_t dim_;    // D
    uint32_t pitch_;  // elements between two heads, and between two rows of cos and sin, of a tile
    uint32_t turn_ = 0;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void apply_rotary(GM_ADDR q, GM_ADDR kv, GM_ADDR cos, GM_ADDR sin,
                                                   ApplyRotaryParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(4 * sizeof(GM_ADDR) + sizeof(ApplyRotaryParams), 3);
    AscendC::TPipe pipe;
    dsv4::kernel::ApplyRotary op(&pipe, cos, sin, p);
    op.run(q, kv);
}
