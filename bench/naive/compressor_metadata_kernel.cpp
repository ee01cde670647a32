#include "kernel_operator.h"
#include "ops/compressor_metadata/compressor_metadata_index.h"
#include "scalar_run.h"

namespace dsv4::naive {

// The group of one output row.
struct RowGroup {
    bool dummy;
    int64_t block;
    int64_t group;
};

// Output rows in order; each is found by walking on over the requests.
class RowWalk {
  public:
    __aicore__ inline RowWalk(const CompressorMetadataAddresses& memory, const CompressorMetadataParams& p)
        : p_(p), memory_(memory) {}

    __aicore__ inline RowGroup at(int64_t row) {
        while (request_ < p_.num_reqs) {
            const CompletedGroups groups = groups_of(request_);
            if (row < first_row_ + groups.count) {
                return placed(groups.first + (row - first_row_));
            }
            first_row_ += groups.count;
            ++request_;
        }
        return RowGroup{true, kDummyBlock, 0};
    }

  private:
    __aicore__ inline CompletedGroups groups_of(int64_t i) const {
        const GM_ADDR offsets = kernel::at(memory_.cu_seqlens);
        const int64_t begin = integer(offsets, p_.cu_seqlens_is_int64, p_.num_reqs + 1, i);
        const int64_t end = integer(offsets, p_.cu_seqlens_is_int64, p_.num_reqs + 1, i + 1);
        const int64_t start = integer(kernel::at(memory_.start_pos), p_.start_pos_is_int64, p_.num_reqs, i);
        return completed_groups(start, end - begin, p_);
    }

    __aicore__ inline RowGroup placed(int64_t group) const {
        if (!group_in_tables(group, p_)) {
            return RowGroup{true, kDummyBlock, group};
        }
        const int64_t table_row =
            p_.has_requests != 0
                ? integer(kernel::at(memory_.requests), p_.request_is_int64, p_.num_reqs, request_)
                : request_;
        const int64_t block =
            integer(kernel::at(memory_.block_table), p_.block_is_int64, p_.block_rows * p_.block_row_elems,
                    block_entry_offset_elems(table_row, block_column(group, p_), p_));
        return RowGroup{block < 0, block, group};
    }

    const CompressorMetadataParams& p_;
    const CompressorMetadataAddresses& memory_;
    int64_t request_ = 0;
    int64_t first_row_ = 0;
};

}  // namespace dsv4::naive

// float32 tables, of which both are asked for or neither.
extern "C" __global__ __aicore__ void compressor_metadata(GM_ADDR error_lanes, CompressorMetadataAddresses memory,
                                                          CompressorMetadataParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    using dsv4::kernel::at;
    AscendC::TPipe pipe;
    dsv4::naive::ScalarRun<int32_t> slots(&pipe);
    dsv4::naive::ScalarRun<int64_t> positions(&pipe);
    dsv4::naive::ScalarRun<float> cos_rows(&pipe);
    dsv4::naive::ScalarRun<float> sin_rows(&pipe);
    const dsv4::BlockShare share = dsv4::block_share(p.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    dsv4::naive::RowWalk walk(memory, p);
    slots.begin(at(memory.fields[dsv4::kCompressorSlots]), dsv4::slot_mapping_offset_elems(share.begin, p));
    positions.begin(at(memory.fields[dsv4::kCompressorPositions]), share.begin);
    cos_rows.begin(at(memory.fields[dsv4::kCompressorCos]), share.begin * p.rope_dim);
    sin_rows.begin(at(memory.fields[dsv4::kCompressorSin]), share.begin * p.rope_dim);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const dsv4::naive::RowGroup now = walk.at(row);
        const int64_t block = now.dummy ? dsv4::kDummyBlock : now.block;
        const int64_t offset = now.dummy ? dsv4::dummy_offset(p) : dsv4::block_offset(now.group, p);
        const int64_t position = dsv4::group_position(now.group, p.ratio);
        if (dsv4::wants(p, dsv4::kCompressorSlots)) {
            if (p.pairs != 0) {
                slots.push(static_cast<int32_t>(block));
                slots.push(static_cast<int32_t>(offset));
            } else {
                slots.push(static_cast<int32_t>(dsv4::flat_slot(block, offset, p)));
            }
        }
        if (dsv4::wants(p, dsv4::kCompressorPositions)) {
            positions.push(now.dummy ? dsv4::kDummyPosition : position);
        }
        for (int32_t d = 0; d < p.rope_dim; ++d) {
            const int64_t index = position * p.rope_dim + d;
            cos_rows.push(now.dummy ? 1.0f
                                    : dsv4::naive::element<float>(at(memory.rope_cos), p.max_pos * p.rope_dim, index));
            sin_rows.push(now.dummy ? 0.0f
                                    : dsv4::naive::element<float>(at(memory.rope_sin), p.max_pos * p.rope_dim, index));
        }
    }
    slots.end();
    positions.end();
    cos_rows.end();
    sin_rows.end();
}
