#include "device/preload.h"
#include "kernel_operator.h"
#include "ops/draft_steps/draft_rope.h"
#include "ops/draft_steps/draft_tile.h"

namespace dsv4::kernel {

// Each block takes a share of the requests, behind which dummies follow in groups of topk, in tiles. All steps of a
// tile are made at once: MTE2 fetches what the requests own, V turns it into steps, MTE3 stores a row a step.
class DraftStepsKernel {
  public:
    __aicore__ inline DraftStepsKernel(AscendC::TPipe* pipe, const DraftStepsAddresses& memory, GM_ADDR error_lanes,
                                       const DraftStepsParams& p)
        : p_(p),
          tile_(pipe, DraftSources{memory.tables, memory.reservation, memory.lengths, memory.requests}, error_lanes, p),
          rope_(pipe, p),
          rope_out_(memory.cos, memory.sin, p) {
        const uint64_t outputs = static_cast<uint64_t>(draft_output(p.num_steps, 0, p));
        slots_out_ = global<int32_t>(at(memory.slots), outputs);
        positions_out_ = global<int64_t>(at(memory.positions), outputs);
        kv_lens_out_ = global<int32_t>(at(memory.kv_lens), outputs);
        tile_.prepare();
        rope_.start(memory.rope_cos, memory.rope_sin);
    }

    __aicore__ inline void run() {
        tile_.every_tile([&](int64_t first_row, uint32_t rows) {
            tile_.make(first_row, rows);
            store_steps();
            rope_.write(first_row, rows, tile_.starts(), tile_.latest_start(), rope_out_);
        });
    }

  private:
    __aicore__ inline void store_steps() {
        const uint32_t steps = static_cast<uint32_t>(p_.num_steps);
        const uint32_t entries = tile_.entries(), lanes = tile_.lanes();
        const LocalTensor<int32_t> kv_lens = tile_.spare();
        AscendC::Adds(kv_lens, tile_.positions(), static_cast<int32_t>(draft_kv_len(0)),
                      static_cast<int32_t>(steps * lanes));
        AscendC::Cast(tile_.wide(), tile_.positions(), AscendC::RoundMode::CAST_NONE, steps * lanes);
        order<HardEvent::V_MTE3>();
        const uint64_t to = static_cast<uint64_t>(draft_output(0, tile_.first_entry(), p_));
        store_strided_rows(slots_out_[to], tile_.slots(), steps, entries, p_.num_entries, lanes);
        store_strided_rows(positions_out_[to], tile_.wide(), steps, entries, p_.num_entries, lanes);
        store_strided_rows(kv_lens_out_[to], kv_lens, steps, entries, p_.num_entries, lanes);
    }

    const DraftStepsParams& p_;
    DraftTile<false> tile_;
    DraftRope rope_;
    StackedRows rope_out_;
    GlobalTensor<int32_t> slots_out_, kv_lens_out_;
    GlobalTensor<int64_t> positions_out_;
};

}  // namespace dsv4::kernel

extern "C" __global__ __aicore__ void draft_steps(GM_ADDR error_lanes, DraftStepsAddresses memory, DraftStepsParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    dsv4::kernel::preload_launch(sizeof(GM_ADDR) + sizeof(DraftStepsAddresses) + sizeof(DraftStepsParams), 5);
    AscendC::TPipe pipe;
    dsv4::kernel::DraftStepsKernel op(&pipe, memory, error_lanes, p);
    op.run();
}
