"""The buckets of a graph runner: which captured graph a batch may replay (docs/spec.md, graphs)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor

from dsv4_npu_ops.cache.host_integers import Integers, host_integers
from dsv4_npu_ops.graph.verify_bucket import BucketShape, RopeTables, VerifyBucket
from dsv4_npu_ops.layout import CompressMetadata, RequestTables


class GraphBuckets:
    """Buckets of several shapes over the same request tables; they share page tables, the only large buffers.

    A smaller bucket uses the first rows of the shared page tables with the row stride of the largest. Every refresh
    rewrites all columns of all rows of its bucket, so that no replay sees what another one left.

    Iterating gives the buckets, largest first: the order in which engines capture, so that later graphs find memory.

    Args:
        tables: request tables, read only.
        shapes: what graphs are captured for; each once.
        rope_cos, rope_sin, token_rope, max_seq_len: as in ``VerifyBucket``.

    Raises:
        ValueError: no shape, or one twice.

    Source: docs/spec.md, graphs.
    """

    def __init__(
        self,
        tables: RequestTables,
        shapes: Iterable[BucketShape],
        rope_cos: Tensor,
        rope_sin: Tensor,
        *,
        token_rope: Mapping[str, RopeTables] | None = None,
        max_seq_len: int | None = None,
    ) -> None:
        wanted = list(shapes)
        if not wanted or len(set(wanted)) < len(wanted):
            raise ValueError(f"GraphBuckets: shapes is {wanted}, expected at least one, and each once")
        shared: CompressMetadata | None = None
        buckets = []
        for shape in sorted(wanted, key=lambda shape: shape.num_rows, reverse=True):
            bucket = VerifyBucket(
                tables,
                shape,
                rope_cos,
                rope_sin,
                token_rope=token_rope,
                max_seq_len=max_seq_len,
                page_tables=shared,
            )
            shared = shared or bucket.step.metadata
            buckets.append(bucket)
        # Smallest first; at the same size a uniform bucket, which has less to read.
        self._by_size = sorted(buckets, key=lambda b: (b.shape.num_tokens, b.shape.num_rows, b.shape.ragged))

    def __iter__(self) -> Iterator[VerifyBucket]:
        return reversed(self._by_size)

    def find(self, num_rows: int, width: int, *, ragged: bool = False) -> VerifyBucket:
        """The smallest bucket that a batch fits into.

        Args:
            num_rows: rows of the batch.
            width: tokens of every row, or the most of one when the batch is ragged.
            ragged: rows have widths of their own.

        Raises:
            ValueError: none fits; the message names those that there are.
        """
        for bucket in self._by_size:
            if bucket.shape.fits(num_rows, width, ragged=ragged):
                return bucket
        kinds = [f"{b.shape.num_rows} x {'up to ' if b.shape.ragged else ''}{b.shape.width}" for b in self._by_size]
        batch = f"{num_rows} x {'up to ' if ragged else ''}{width}"
        raise ValueError(f"GraphBuckets.find: the batch is {batch} (rows x width), expected to fit {', '.join(kinds)}")

    def fill(self, req_pool_indices: Integers, seq_lens: Integers, width: int | Integers) -> VerifyBucket:
        """Finds the bucket of a batch and sets its inputs: ``find`` and ``VerifyBucket.fill``.

        Args:
            req_pool_indices, seq_lens: as in ``StaticInputs.fill``.
            width: tokens of every row, or one number a row.

        Returns:
            the bucket whose graph is to be replayed.

        Raises:
            ValueError: no bucket fits, or a bad value; the inputs of every bucket keep what they held.
        """
        rows = len(req_pool_indices)
        if isinstance(width, int):
            bucket = self.find(rows, width)
            widths = [width] * rows if bucket.shape.ragged else None
        else:
            widths = host_integers("fill", "width", width)
            bucket = self.find(rows, max(widths, default=0), ragged=True)
        bucket.fill(req_pool_indices, seq_lens, widths)
        return bucket
