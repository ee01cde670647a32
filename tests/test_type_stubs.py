"""The stubs say what the extension registers and exports."""

import ast
import sys
from pathlib import Path

import pytest

from dsv4_npu_ops import _C

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "distribution"))

import op_stubs  # noqa: E402


def signatures(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The calls of each class, by class and overload."""
    return {
        f"{kind.name}.{number}": method
        for kind in tree.body
        if isinstance(kind, ast.ClassDef)
        for number, method in enumerate(
            item for item in kind.body if isinstance(item, ast.FunctionDef) and item.name == "__call__"
        )
    }


def test_the_stub_of_the_ops_is_that_of_the_registered_schemas() -> None:
    assert op_stubs.STUB.read_text() == op_stubs.stub(), "`make stubs` writes it"


def test_signatures_by_hand() -> None:
    calls = signatures(ast.parse(op_stubs.STUB.read_text()))
    gather = calls["RopeGatherDefault.0"].args
    assert [argument.arg for argument in gather.args] == ["self", "cos", "sin", "positions"]
    assert {argument.arg: ast.unparse(argument.annotation) for argument in gather.kwonlyargs} == {
        "inverse": "bool",
        "dtype": "torch.dtype | None",
    }
    assert [ast.unparse(default) for default in gather.kw_defaults] == ["False", "None"]
    assert ast.unparse(calls["RopeGatherDefault.0"].returns) == "tuple[Tensor, Tensor]"
    assert ast.unparse(calls["RopeGather.1"].returns) == "None"
    assert ast.unparse(calls["PayloadSpans.0"].returns) == "list[int]"
    assert ast.unparse(calls["StepSizesDefault.0"].returns) == "tuple[" + "int | SymInt, " * 5 + "Tensor]"


@pytest.mark.parametrize(
    ("call", "argument", "annotation"),
    [
        ("ApplyRotaryDefault.0", "q", "Tensor | None"),
        ("ApplyRotaryDefault.0", "cos", "Tensor"),
        ("C4SlotsFromFullDefault.0", "num_groups", "int | SymInt"),
        ("RopeTablesDefault.0", "dtype", "torch.dtype"),
        ("AdvanceStepDefault.0", "tables", "Sequence[Tensor]"),
        ("AdvanceStepDefault.0", "addressing", "Sequence[int]"),
        ("AdvanceStepDefault.0", "width", "int"),
        ("AdvanceStepDefault.0", "positions", "Tensor | None"),
    ],
)
def test_kinds_of_arguments_by_hand(call: str, argument: str, annotation: str) -> None:
    arguments = signatures(ast.parse(op_stubs.STUB.read_text()))[call].args
    declared = {found.arg: ast.unparse(found.annotation) for found in arguments.args[1:] + arguments.kwonlyargs}
    assert declared[argument] == annotation


@pytest.mark.parametrize("name", ["version", "torch_version", "compiler"])
def test_the_stub_of_the_extension(name: str) -> None:
    stub = ast.parse((ROOT / "python/dsv4_npu_ops/_C.pyi").read_text())
    declared = {node.target.id: ast.unparse(node.annotation) for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert set(declared) == {key for key in vars(_C) if not key.startswith("__")}
    assert type(getattr(_C, name)).__name__ == declared[name]
