// Everything that compress_metadata writes (docs/spec.md, 3.1).
#pragma once

#include "device/page_tables.h"
#include "device/step_entries.h"

namespace dsv4::kernel {

struct MetadataTableAddresses {
    GM_ADDR swa;
    GM_ADDR c4;
    GM_ADDR c128;
    GM_ADDR c4_state;
    GM_ADDR c128_state;
};

struct MetadataAddresses {
    GM_ADDR positions_c4;
    GM_ADDR positions_c128;
    GM_ADDR c4_loc;
    GM_ADDR c128_loc;
    GM_ADDR start_pos;
    GM_ADDR seqused;
    GM_ADDR cu_seqlens;
    GM_ADDR positions;
    GM_ADDR kv_lens;
    GM_ADDR swa_page_table;
    GM_ADDR c4_page_table;
    GM_ADDR c128_page_table;
    GM_ADDR c4_state_page_table;
    GM_ADDR c128_state_page_table;
};

// start_pos, seqused, kv_lens [B], cu_seqlens [B + 1]: slices of the arrays in UB.
__aicore__ inline void write_row_vectors(StepRows& rows, const MetadataAddresses& out) {
    const int64_t num_rows = rows.params().num_rows;
    const BlockShare share = rows.share(num_rows + 1);
    if (share.begin == share.end) {
        return;
    }
    const uint32_t begin = static_cast<uint32_t>(share.begin);
    const uint64_t count = static_cast<uint64_t>(num_rows);
    const uint32_t mine = static_cast<uint32_t>(min_of(share.end, num_rows) - share.begin);
    rows.next_stage();
    store(global<int32_t>(out.cu_seqlens, count + 1)[begin], rows.prefix(1)[begin],
          static_cast<uint32_t>(share.end) - begin);
    if (mine == 0) {
        return;
    }
    store(global<int32_t>(out.start_pos, count)[begin], rows.starts()[begin], mine);
    store(global<int32_t>(out.seqused, count)[begin], rows.counts()[begin], mine);
    const LocalTensor<int32_t> kv_lens = rows.scratch();
    AscendC::Add(kv_lens, rows.starts()[begin], rows.counts()[begin], static_cast<int32_t>(mine));
    AscendC::PipeBarrier<PIPE_V>();
    // Only padding has length 0.
    AscendC::Maxs(kv_lens, kv_lens, static_cast<int32_t>(kv_length(StepRow{0, 0, 0})), static_cast<int32_t>(mine));
    order<AscendC::HardEvent::V_MTE3>();
    store(global<int32_t>(out.kv_lens, count)[begin], kv_lens, mine);
}

__aicore__ inline void write_step_metadata(StepRows& rows, StepEntries& entries, const StepMetadataParams& p,
                                           const MetadataTableAddresses& tables, const MetadataAddresses& out) {
    write_row_vectors(rows, out);
    entries.positions<1>(out.positions, rows.params().num_tokens);
    entries.positions<kRatioC4>(out.positions_c4, p.c4_capacity_groups);
    entries.positions<kRatioC128>(out.positions_c128, p.c128_capacity_groups);
    const SlotTable c4[] = {{tables.c4, p.c4_row_elems, out.c4_loc}};
    const SlotTable c128[] = {{tables.c128, p.c128_row_elems, out.c128_loc}};
    entries.slots<kRatioC4>(c4, p.c4_capacity_groups);
    entries.slots<kRatioC128>(c128, p.c128_capacity_groups);
    PageTables pages(rows, p);
    pages.prepare();
    pages.write(kSwa, tables.swa, out.swa_page_table);
    pages.write(kC4, tables.c4, out.c4_page_table);
    pages.write(kC128, tables.c128, out.c128_page_table);
    pages.write(kC4State, tables.c4_state, out.c4_state_page_table);
    pages.write(kC128State, tables.c128_state, out.c128_state_page_table);
}

}  // namespace dsv4::kernel
