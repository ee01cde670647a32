"""What must be equal in SGLang's metadata: everything, but page tables only where attention reads them."""

import torch

from engines.sglang.world import SIX_TABLES

PAGE, WINDOW = 128, 128
EXACT = (
    "start_pos",
    "seqused",
    "actual_seq_lengths_kv",
    "seq_lens_cpu_int",
    "positions_cmp_padding_c4",
    "positions_cmp_padding_c128",
    "c4_loc",
    "c128_loc",
    "swa_loc",
    "c4_state_loc",
    "c128_state_loc",
    "dsv4_max_input_capacity",
    "ori_sparse_indices",
)


def assert_same_buffers(theirs, ours, starts, finals, *, skip=(), compresses=True, pages_of=None):
    """Compares two metadata objects of one step; rows behind those named are padding.

    Args:
        pages_of: the right pages of a row, by the table's name, where SGLang's own are not.
    """
    for name in EXACT:
        if name.startswith(tuple(skip)) and skip:
            continue
        expected, given = getattr(theirs, name, None), getattr(ours, name, None)
        if isinstance(expected, torch.Tensor):
            assert expected.shape == given.shape, name
            assert expected.tolist() == given.tolist(), name
        else:
            assert expected == given, name
    for ratio, table in getattr(theirs, "dsv4_explicit_state_block_tables", {}).items():
        assert table.tolist() == ours.dsv4_explicit_state_block_tables[ratio].tolist(), f"states of ratio {ratio}"
    for i, (start, final) in enumerate(zip(starts, finals, strict=True)):
        pages = {
            "swa_page_table": range(max(0, start - WINDOW + 1) // PAGE, -(-final // PAGE)),
            "c4_page_table": range(-(-(final // 4) // (PAGE if SIX_TABLES else 32))),
            "c128_page_table": range(-(-(final // 128) // (PAGE if SIX_TABLES else 16))),
            "c4_state_page_table": range(max(0, start // 4 - 1) * 4 // PAGE, -(-final // PAGE)),
            "c128_state_page_table": range(start // 128 * 128 // PAGE, -(-final // PAGE)),
        }
        for name, columns in pages.items():
            expected, given = getattr(theirs, name, None), getattr(ours, name, None)
            if expected is None:
                continue
            right = pages_of(i, name) if pages_of and "state" in name else expected[i]
            for column in columns:
                assert int(right[column]) == int(given[i, column]), (name, i, column)
                assert int(given[i, column]) > 0 or not (compresses or name.startswith("swa")), (name, i, column)
