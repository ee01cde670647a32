"""Sizes of a step's outputs (docs/spec.md, a step)."""

from dsv4_npu_ops.layout.kv_layout import RAW_TOKENS_PER_SLOT


def group_capacity(num_tokens: int, num_rows: int, ratio: int) -> int:
    """Entries of a dense per-group output: ``max(1, min(T, T // ratio + B))``."""
    return max(1, min(num_tokens, num_tokens // ratio + num_rows))


def page_columns(max_seq_len: int, pool: str, page_size: int) -> int:
    """Columns that the page table of ``pool`` needs for requests of ``max_seq_len`` raw tokens; at least 1."""
    return max(1, -(-(max_seq_len // RAW_TOKENS_PER_SLOT[pool]) // page_size))
