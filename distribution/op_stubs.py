"""Writes python/dsv4_npu_ops/torch_ops.pyi, the signatures of ``torch.ops.dsv4_npu_ops``, from the schemas."""

import re
from collections.abc import Iterator
from pathlib import Path

import torch

import dsv4_npu_ops  # noqa: F401  (registers the ops)

STUB = Path(__file__).resolve().parents[1] / "python" / "dsv4_npu_ops" / "torch_ops.pyi"
NAMESPACE = "dsv4_npu_ops::"
HEADER = '''\
"""Signatures of ``torch.ops.dsv4_npu_ops``, for type checkers only; written by ``make stubs``.

    if TYPE_CHECKING:
        from dsv4_npu_ops.torch_ops import Ops
    ops: "Ops" = torch.ops.dsv4_npu_ops

docs/spec.md says what each op does. Tensors that a call writes are named in the op's README.
"""

from collections.abc import Sequence
from typing import Protocol, overload

import torch
from torch import SymInt, Tensor
'''
ARGUMENTS = {
    "Tensor": "Tensor",
    "Tensor?": "Tensor | None",
    "int": "int",
    "int?": "int | None",
    "SymInt": "int | SymInt",
    "Tensor[]": "Sequence[Tensor]",
    "Tensor?[]": "Sequence[Tensor | None]",
    "int[]": "Sequence[int]",
    "bool": "bool",
    "Device": "torch.device",
    "ScalarType": "torch.dtype",
    "ScalarType?": "torch.dtype | None",
}
RETURNS = {"Tensor": "Tensor", "Tensor[]": "list[Tensor]", "SymInt": "int | SymInt", "int[]": "list[int]"}


def types(declared: str) -> list[str]:
    """Types of a list of arguments or results, as in ``Tensor(a!)? q, *, bool inverse=False``."""
    declared = re.sub(r"=\[[^\]]*\]", "", declared)  # defaults that are lists
    words = [part.split(" ")[0] for part in declared.split(", ") if part not in ("", "*")]
    return [re.sub(r"\(\w+!?\)", "", word) for word in words]


def schemas() -> dict[str, dict[str, torch.FunctionSchema]]:
    """Schemas of the extension's ops: by op, then by overload."""
    found: dict[str, dict[str, torch.FunctionSchema]] = {}
    for schema in sorted(torch._C._jit_get_all_schemas(), key=lambda schema: (schema.name, schema.overload_name)):
        op = schema.name.removeprefix(NAMESPACE)
        if op != schema.name and not op.startswith("npu_"):  # those of the NPU library are for this package alone
            found.setdefault(op, {})[schema.overload_name or "default"] = schema
    return found


def call(schema: torch.FunctionSchema, indent: str) -> Iterator[str]:
    """Lines of a method that takes the arguments of a schema."""
    declared, returned = re.fullmatch(r"[^(]*\((.*)\) -> (.*)", str(schema)).groups()
    yield f"{indent}def __call__("
    yield f"{indent}    self,"
    keywords = False
    for argument, kind in zip(schema.arguments, types(declared), strict=True):
        if argument.kwarg_only and not keywords:
            yield f"{indent}    *,"
            keywords = True
        default = f" = {argument.default_value!r}" if argument.has_default_value() else ""
        yield f"{indent}    {argument.name}: {ARGUMENTS[kind]}{default},"
    results = [RETURNS[kind] for kind in types(returned.removeprefix("(").removesuffix(")"))]
    if len(results) < 2:
        yield f"{indent}) -> {results[0] if results else None}: ..."
        return
    yield f"{indent}) -> tuple["
    yield from (f"{indent}    {result}," for result in results)
    yield f"{indent}]: ..."


def stub() -> str:
    """Text of the file."""
    lines = [HEADER]
    ops = schemas()
    for op, overloads in ops.items():
        kind = op.title().replace("_", "")
        for name, schema in overloads.items():
            lines += [f"class {kind}{name.title()}(Protocol):", *call(schema, "    "), ""]
        lines.append(f"class {kind}(Protocol):")
        for name in overloads:
            lines += ["    @property", f"    def {name}(self) -> {kind}{name.title()}: ..."]
        for schema in overloads.values():
            lines += (["    @overload"] if len(overloads) > 1 else []) + list(call(schema, "    "))
        lines.append("")
    lines.append("class Ops(Protocol):")
    for op in ops:
        lines += ["    @property", f"    def {op}(self) -> {op.title().replace('_', '')}: ..."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub())
