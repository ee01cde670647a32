"""What must be equal in SGLang's metadata: everything, but page tables only where attention reads them."""

import torch

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
    "dsv4_max_input_capacity",
    "ori_sparse_indices",
)


def assert_same_buffers(theirs, ours, starts, finals, *, skip=(), compresses=True):
    """Compares two metadata objects of one step; rows behind those named are padding."""
    for name in EXACT:
        if name.startswith(tuple(skip)) and skip:
            continue
        expected, given = getattr(theirs, name, None), getattr(ours, name, None)
        if isinstance(expected, torch.Tensor):
            assert expected.shape == given.shape, name
            assert expected.tolist() == given.tolist(), name
        else:
            assert expected == given, name
    for ratio, table in theirs.dsv4_explicit_state_block_tables.items():
        assert table.tolist() == ours.dsv4_explicit_state_block_tables[ratio].tolist(), f"states of ratio {ratio}"
    for i, (start, final) in enumerate(zip(starts, finals, strict=True)):
        pages = {
            "swa_page_table": range(max(0, start - WINDOW + 1) // PAGE, -(-final // PAGE)),
            "c4_page_table": range(-(-(final // 4) // 32)),
            "c128_page_table": range(-(-(final // 128) // 16)),
        }
        for name, columns in pages.items():
            expected, given = getattr(theirs, name, None), getattr(ours, name, None)
            if expected is None:
                continue
            for column in columns:
                assert int(expected[i, column]) == int(given[i, column]), (name, i, column)
                assert int(given[i, column]) > 0 or not (compresses or name.startswith("swa")), (name, i, column)
