#include "kernel_operator.h"
#include "ops/apply_rotary/apply_rotary_index.h"
#include "scalar_run.h"

namespace dsv4::naive {

union Float32 {
    uint32_t bits;
    float value;
};

__aicore__ inline float from_bfloat16(uint16_t bits) { return Float32{uint32_t{bits} << 16}.value; }

// Finite values only; to nearest, ties to even.
__aicore__ inline uint16_t to_bfloat16(float value) {
    Float32 x;
    x.value = value;
    return static_cast<uint16_t>((x.bits + 0x7fffu + ((x.bits >> 16) & 1u)) >> 16);
}

// bfloat16 features, float32 cos and sin.
__aicore__ inline void rotate(ScalarRun<uint16_t>& values, GM_ADDR address, GM_ADDR cos, GM_ADDR sin,
                              const RotaryOperand& x, const ApplyRotaryParams& p) {
    const BlockShare share =
        block_share(p.num_tokens * x.num_heads, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    const int64_t elems = rotary_offset_elems(p.num_tokens - 1, x.num_heads - 1, x, 0);
    for (int64_t item = share.begin; item < share.end; ++item) {
        const int64_t token = item / x.num_heads;
        const int64_t first = rotary_offset_elems(token, item % x.num_heads, x, p.rope_dim);
        values.begin(address, first);
        for (int64_t d = 0; d < p.rope_dim; ++d) {
            const float own = from_bfloat16(element<uint16_t>(address, elems, first + d));
            const float other = from_bfloat16(element<uint16_t>(address, elems, first + (d ^ 1)));
            const float c = element<float>(cos, p.num_tokens * p.cos_stride, token * p.cos_stride + d);
            const float s = element<float>(sin, p.num_tokens * p.sin_stride, token * p.sin_stride + d);
            const float signed_s = (d & 1) == (p.inverse != 0 ? 1 : 0) ? -s : s;
            values.push(to_bfloat16(own * c + other * signed_s));
        }
        values.end();
    }
}

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void apply_rotary(GM_ADDR q, GM_ADDR kv, GM_ADDR cos, GM_ADDR sin,
                                                   ApplyRotaryParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    dsv4::naive::ScalarRun<uint16_t> values(&pipe);
    dsv4::naive::rotate(values, q, cos, sin, p.q, p);
    dsv4::naive::rotate(values, kv, cos, sin, p.kv, p);
}
