"""One step: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.step``."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

import dsv4_npu_ops._C  # noqa: F401  (loading it registers torch.ops.dsv4_npu_ops)
from dsv4_npu_ops.layout.buffers import GROUPS, Buffer, empty_tensors, numbers_of
from dsv4_npu_ops.layout.kv_layout import POOLS
from dsv4_npu_ops.layout.step import STEP_FIELDS, Step
from dsv4_npu_ops.layout.step_rows import StepRows
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.layout.verify_step import RopeTables, check_rope_tables
from dsv4_npu_ops.ops.attributes import attributes
from dsv4_npu_ops.ops.bound_call import BoundCall
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors
from dsv4_npu_ops.ops.fake_kernels import empty_buffers, fake_kernel, writes_only
from dsv4_npu_ops.ops.reserved import check_reserved
from dsv4_npu_ops.ops.step_sizes import step_sizes

_step = torch.ops.dsv4_npu_ops.step.default
_new_step = torch.ops.dsv4_npu_ops.step.new
_fields_of = attributes(STEP_FIELDS)

NO_SLOTS: list[int] = [0, 0, 0, 0, 0, 0]
"""What stands for no slot, by pool, unless a caller says otherwise."""

NO_PAGES: list[int] = [-1, -1, -1, -1, 0, 0]
"""What stands for no page: what attention takes for the end of a row, and what state kernels skip."""

# Fields of rows, with as many axes of one element between the first and the last as an engine's buffers have.
_FIELDS_OF_ROWS = [i for i, name in enumerate(STEP_FIELDS) if name.endswith(("_cos", "_sin")) or name == "window_locs"]

TOKEN_TABLES: dict[str, str] = {
    "main_rope_cos": "main_rope[0]",
    "main_rope_sin": "main_rope[1]",
    "compress_rope_cos": "compress_rope[0]",
    "compress_rope_sin": "compress_rope[1]",
}
"""RoPE tables of the tokens: what the op calls them, and what callers write."""

_ROWS = ["seq_lens", "req_pool_indices", "operand"]
_ROPE = ["rope_cos", "rope_sin", *TOKEN_TABLES]


def _positions(op: torch._ops.OpOverload, *names: str) -> list[int]:
    arguments = [argument.name for argument in op._schema.arguments]
    return [arguments.index(name) for name in names]


_CHANGING_ROWS = _positions(_step, *_ROWS)
_CHANGING = _positions(_new_step, *_ROWS, "host_seq_lens", "host_operand", *_ROPE)
"""What differs between calls of a step that is bound, in the order in which calls bring it."""


@caller_errors(TABLES | TOKEN_TABLES)
def build_step(
    tables: RequestTables,
    rows: StepRows,
    out: Step,
    *,
    req_pool_indices: Tensor | None = None,
    rope_cos: Tensor | None = None,
    rope_sin: Tensor | None = None,
    dummy_slots: Mapping[str, int] | None = None,
    dummy_pages: Mapping[str, int] | None = None,
    window_block: int = 1,
    closes_cu_seqlens: bool = False,
    main_rope: RopeTables | None = None,
    compress_rope: RopeTables | None = None,
) -> Step:
    """Fills whatever of a step is asked for, to the last entry, in one launch.

    Args:
        tables: where the pools' slots stand, read only.
        rows: the step's rows.
        out: buffers; what is None is not computed. Mutated.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device; None: row ``i`` of the batch is
            row ``i`` of the tables.
        rope_cos, rope_sin: float32 ``[max_pos, D]`` tables of the compressed layers' base, needed where RoPE rows are
            asked for. They and their rows may have axes of one element between the two, as in ``[max_pos, 1, 1, D]``.
        dummy_slots: what stands for no slot, by pool; 0 where it is not given.
        dummy_pages: what stands for no page, by pool; -1, or 0 for state pools, where it is not given.
        window_block: rows of ``window_locs`` that belong to one request.
        closes_cu_seqlens: the last of ``cu_seqlens`` is the number of entries of the token tensors, whatever the rows
            bring.
        main_rope: tables of ``main_cos`` and ``main_sin``, of the base of ratio 0: float32, float16 or bfloat16
            ``[max_pos, D]``, contiguous, with axes of one element as above.
        compress_rope: the same of ``compress_cos`` and ``compress_sin``, of the compressed layers' base.

    Returns:
        ``out``.

    Raises:
        ValueError: wrong dtype, shape, device or strides; an output that its pool cannot give; a buffer too small; on a
            CPU also a negative or decreasing length, one beyond ``max_context_len`` or the page tables, an unknown
            request, more live pages than a ring has columns, a slot beyond a mapping. Nothing was written.
        IndexError: on a CPU, a position of a token or completed group outside its RoPE tables. Nothing was written.

    Source: docs/spec.md, a step.
    """
    values = list(_fields_of(out))
    for field in _FIELDS_OF_ROWS:
        if values[field] is not None:
            values[field] = _matrix(f"out.{STEP_FIELDS[field]}", values[field])
    fields = [field for field, value in enumerate(values) if value is not None]
    fill_step(
        tables,
        rows,
        [values[field] for field in fields],
        bits(fields),
        req_pool_indices,
        None if rope_cos is None else _matrix("rope_cos", rope_cos),
        None if rope_sin is None else _matrix("rope_sin", rope_sin),
        NO_SLOTS if dummy_slots is None else _by_pool("dummy_slots", dummy_slots, NO_SLOTS),
        NO_PAGES if dummy_pages is None else _by_pool("dummy_pages", dummy_pages, NO_PAGES),
        window_block,
        closes_cu_seqlens,
        **token_rope(main_rope, compress_rope),
    )
    return out


def token_rope(main_rope: RopeTables | None, compress_rope: RopeTables | None) -> dict[str, Tensor]:
    """RoPE tables of the tokens that are given, by the names of the op's arguments.

    Raises:
        ValueError: what is no pair of tensors of a type that RoPE rows have.
    """
    if main_rope is None and compress_rope is None:
        return {}
    check_rope_tables("step", main_rope=main_rope, compress_rope=compress_rope)
    tables = (*(main_rope or (None, None)), *(compress_rope or (None, None)))
    named = zip(TOKEN_TABLES, tables, strict=True)
    return {name: _matrix(TOKEN_TABLES[name], table) for name, table in named if table is not None}


def fill_step(
    tables: RequestTables,
    rows: StepRows,
    out: Sequence[Tensor],
    fields: int,
    req_pool_indices: Tensor | None = None,
    rope_cos: Tensor | None = None,
    rope_sin: Tensor | None = None,
    *unusual: Any,
    **token_tables: Tensor,
) -> None:
    """Calls the op: fills each tensor of ``out`` as the field of the next bit in ``fields``.

    Args:
        unusual: ``dummy_slots``, ``dummy_pages``, ``window_block`` and ``closes_cu_seqlens``, where they are not the
            op's defaults: an argument that is not passed costs a call nothing.
        token_tables: see ``token_rope``.
    """
    if tables.check_reserved:
        check_reserved("step", tables, rows, req_pool_indices)
    arguments = _arguments(tables, rows, out, fields, req_pool_indices, rope_cos, rope_sin)
    _step(*arguments, *unusual, **token_tables)


def bind_step(
    tables: RequestTables,
    rows: StepRows,
    out: Sequence[Tensor],
    fields: int,
    req_pool_indices: Tensor | None = None,
    rope_cos: Tensor | None = None,
    rope_sin: Tensor | None = None,
    *unusual: Any,
    **token_tables: Tensor,
) -> Callable[..., object]:
    """A call of ``fill_step`` into the same buffers again and again.

    Returns:
        A function of ``seq_lens``, ``req_pool_indices`` and ``operand``, which stand for those here.
    """
    arguments = *_arguments(tables, rows, out, fields, req_pool_indices, rope_cos, rope_sin), *unusual
    call = BoundCall("step", arguments, _CHANGING_ROWS, **token_tables)

    def run(seq_lens: Tensor, requests: Tensor | None = None, operand: Tensor | None = None) -> None:
        if tables.check_reserved:
            check_reserved("step", tables, StepRows(seq_lens, rows.form, operand, rows.width), requests)
        call.run(seq_lens, requests, operand)

    return run


class NewStep:
    """A step into new tensors of the same sizes again and again. Its second call binds it: sizes that do not come back
    would pay for nothing.

    Args:
        tables: the tables.
        buffers: the numbers of the tensors (``numbers_of``); those behind the ones of ``fields`` are left as they are.
        fields: of the step.
        unusual: see ``fill_step``.
    """

    __slots__ = ("_call", "_numbers", "_tables", "_unusual", "_wanted", "_was_called")

    def __init__(self, tables: RequestTables, buffers: Sequence[int], fields: int, *unusual: Any) -> None:
        self._tables, self._numbers, self._wanted, self._unusual = tables, buffers, fields, unusual
        self._call: BoundCall | None = None
        self._was_called = False

    def run(
        self,
        rows: StepRows,
        req_pool_indices: Tensor | None,
        rope_cos: Tensor | None = None,
        rope_sin: Tensor | None = None,
        *,
        host_rows: StepRows | None = None,
        token_tables: Mapping[str, Tensor] | None = None,
    ) -> list[Tensor]:
        """Makes the tensors.

        Args:
            rows: of the form and width of the first call.
            host_rows: the rows with tensors on the host, where sizes are of ``GROUPS``.
            token_tables: see ``token_rope``.
        """
        if self._tables.check_reserved:
            check_reserved("step", self._tables, rows, req_pool_indices)
        host = (None, None) if host_rows is None else (host_rows.seq_lens, host_rows.operand)
        if self._call is None:
            numbers = self._numbers, self._wanted
            arguments = _arguments(self._tables, rows, *numbers, req_pool_indices, rope_cos, rope_sin)
            named = token_tables or {}
            if not self._was_called:
                self._was_called = True
                made: list[Tensor] = _new_step(
                    *arguments, *self._unusual, **named, host_seq_lens=host[0], host_operand=host[1]
                )
                return made
            self._call = BoundCall("step__new", (*arguments, *self._unusual), _CHANGING, **named)
        of_rows = rows.seq_lens, req_pool_indices, rows.operand
        if rope_cos is None and not token_tables:
            return self._call.run(*of_rows) if host_rows is None else self._call.run(*of_rows, *host)
        return self._call.run(*of_rows, *host, rope_cos, rope_sin, *map((token_tables or {}).get, TOKEN_TABLES))


def _arguments(
    tables: RequestTables,
    rows: StepRows,
    buffers: Sequence[Any],
    fields: int,
    req_pool_indices: Tensor | None,
    rope_cos: Tensor | None,
    rope_sin: Tensor | None,
) -> tuple[Any, ...]:
    """What both forms of the op take first, in its order."""
    return (
        *tables.op_pools,
        req_pool_indices,
        rows.seq_lens,
        rows.operand,
        rope_cos,
        rope_sin,
        rows.form,
        rows.width,
        tables.sliding_window,
        tables.max_context_len,
        buffers,
        fields,
    )


def bits(fields: Sequence[int]) -> int:
    """The number by which the op knows a set of fields."""
    return sum(1 << field for field in fields)


_PLAIN = {int, type(None)}


class ResultFields:
    """Which attributes of a result type are which fields of a step.

    Args:
        paths: attribute of the result (dotted: of a part of it) by the field's name.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)
        self._present: dict[tuple[int, ...], tuple[Callable[[object], Sequence[Tensor]], int]] = {}

    @property
    def names(self) -> dict[str, str]:
        """``{"out.start_pos": "out.metadata.start_pos", ..}``: what the op calls the buffers, and where they are."""
        return {f"out.{name}": f"out.{path}" for name, path in self._paths.items()}

    def take(self, result: object, tables: RequestTables) -> tuple[Sequence[Tensor], int]:
        """``out`` and ``fields`` of ``fill_step``: what the pools of the tables can give of the result."""
        present = self._present.get(tables.kinds)
        if present is None:
            fields = self._given(tables)
            present = attributes([self._paths[STEP_FIELDS[i]] for i in fields]), bits(fields)
            self._present[tables.kinds] = present
        return present[0](result), present[1]

    def make(
        self,
        tables: RequestTables,
        rows: StepRows,
        sizes: tuple[Any, ...],
        buffers: Callable[..., Mapping[str, Buffer]],
        *inputs: Tensor | None,
        host_rows: StepRows | None = None,
        token_tables: Mapping[str, Tensor] | None = None,
    ) -> Sequence[Tensor]:
        """A step into new buffers.

        Args:
            sizes: what ``buffers`` is called with, behind the tables, and all that it looks at: integers or None.
            buffers: gives the buffer of each field.
            inputs, token_tables: ``req_pool_indices``, ``rope_cos``, ``rope_sin`` and the tables of the tokens.
            host_rows: the rows with tensors on the host; the last two sizes are then those of ``GROUPS``.

        Returns:
            A tensor for each field, in the order of ``paths``; without entries where the pools cannot give it.
        """
        if torch.compiler.is_compiling() or not _PLAIN.issuperset(map(type, sizes)):
            # Symbols of a trace, or what the op is going to refuse.
            if host_rows is not None:
                sizes = *sizes[:-2], *step_sizes(host_rows)[1:3]
            order, fields, in_order = self._buffers(tables, buffers(tables, *sizes))
            made = empty_tensors(order, rows.seq_lens.device)
            fill_step(tables, rows, made[: fields.bit_count()], fields, *inputs, **(token_tables or {}))
            return [made[i] for i in in_order]
        key = self, rows.form, rows.width, sizes, tables.max_context_len
        found = tables.calls.get(key)
        if found is None:
            order, fields, in_order = self._buffers(tables, buffers(tables, *sizes))
            step = NewStep(tables, numbers_of(order), fields)
            found = tables.calls.keep(key, (step, itemgetter(*in_order)))
        step, take = found
        return take(step.run(rows, *inputs, host_rows=host_rows, token_tables=token_tables))  # type: ignore[no-any-return]

    def _buffers(self, tables: RequestTables, buffers: Mapping[str, Buffer]) -> tuple[list[Buffer], int, list[int]]:
        """The op's buffers, its fields, and which of its results is which of ours."""
        given = self._given(tables)
        absent = [STEP_FIELDS.index(name) for name in self._paths if STEP_FIELDS.index(name) not in given]
        order = [STEP_FIELDS[field] for field in (*given, *absent)]
        return [buffers[name] for name in order], bits(given), [order.index(name) for name in self._paths]

    def _given(self, tables: RequestTables) -> list[int]:
        return [i for i, name in enumerate(STEP_FIELDS) if name in self._paths and _gives(tables, name)]


def _gives(tables: RequestTables, name: str) -> bool:
    """Whether a field can be asked for: that of a pool needs the pool, or its pages."""
    for pool in POOLS:
        if name == f"out_{pool}_loc":
            return tables.has_pool(pool)
        if name == f"{pool}_page_table":
            return tables.has_pages(pool)
    return True


def _matrix(name: str, rows: Tensor) -> Tensor:
    """``[N, K]`` view of ``[N, K]``, ``[N, 1, K]`` or ``[N, 1, 1, K]``."""
    if rows.dim() == 2:
        return rows
    middle = rows.shape[1:-1]
    if rows.dim() < 2 or any(size != 1 for size in middle):
        raise ValueError(
            f"step: {name} has shape {list(rows.shape)}, expected 2 dimensions, or others of 1 between them"
        )
    return rows.squeeze(tuple(range(1, rows.dim() - 1)))


def _by_pool(name: str, given: Mapping[str, int], default: list[int]) -> list[int]:
    if not isinstance(given, Mapping):
        raise ValueError(f"step: {name} is {given!r}, expected a mapping of pools to what stands for none")
    for pool in given:
        if pool not in POOLS:
            raise ValueError(f"step: {name} names pool {pool!r}, expected pools among {', '.join(POOLS)}")
    return [given.get(pool, dummy) for pool, dummy in zip(POOLS, default, strict=True)]


fake_kernel("step", fields=STEP_FIELDS)(writes_only)


@fake_kernel("step.new")
def _(
    tables: Sequence[Tensor],
    addressing: Sequence[int],
    req_pool_indices: Tensor | None,
    seq_lens: Tensor,
    operand: Tensor | None,
    rope_cos: Tensor | None,
    rope_sin: Tensor | None,
    form: int,
    width: int,
    window: int,
    max_context_len: int,
    buffers: Sequence[int],
    fields: int,
    dummy_slots: Sequence[int] = (),
    dummy_pages: Sequence[int] = (),
    window_block: int = 1,
    closes_cu_seqlens: bool = False,
    main_rope_cos: Tensor | None = None,
    main_rope_sin: Tensor | None = None,
    compress_rope_cos: Tensor | None = None,
    compress_rope_sin: Tensor | None = None,
    host_seq_lens: Tensor | None = None,
    host_operand: Tensor | None = None,
) -> list[Tensor]:
    if any(number in buffers for number in GROUPS.values()):
        buffers = _counted(buffers, host_seq_lens, host_operand, form, width)
    return empty_buffers(buffers, seq_lens.device)


def _counted(
    buffers: Sequence[int], host_seq_lens: Tensor | None, host_operand: Tensor | None, form: int, width: int
) -> list[Any]:
    """The buffers with numbers of groups, which are symbols where the rows on the host have no values."""
    if host_seq_lens is None:
        raise ValueError("step: host_seq_lens is None, expected the lengths on the host, by which groups are counted")
    if host_seq_lens.device.type != "cpu":
        raise ValueError(f"step: host_seq_lens is on {host_seq_lens.device}, expected a host tensor (cpu)")
    if type(host_seq_lens) is Tensor:
        c4_groups, c128_groups = step_sizes(StepRows(host_seq_lens, form, host_operand, width))[1:3]
        groups: dict[int, Any] = {GROUPS["c4"]: c4_groups, GROUPS["c128"]: c128_groups}
    else:
        context = torch.library.get_ctx()
        groups = {number: context.new_dynamic_size() for number in GROUPS.values() if number in buffers}
    return [groups.get(number, number) for number in buffers]
