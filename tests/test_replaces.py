"""docs/replaces.md names what there is: the plug-ins' functions, their modules, and the package's names."""

import importlib
import re
from pathlib import Path

import torch

import dsv4_npu_ops as d

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "replaces.md").read_text()


def table(section: str) -> list[list[str]]:
    """The rows of a section's first table, without its head."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def test_functions_are_those_of_the_plug_ins_pages() -> None:
    for section, page in (("SGLang", "sglang.md"), ("vLLM-Ascend", "vllm_ascend.md")):
        plug_in = (ROOT / "docs" / page).read_text()
        for function, *_ in table(section):
            for name in re.findall(r"`([^`]+)`", function):
                assert name.split(".")[-1] in plug_in, f"{name} is not in {page}"


def test_modules_exist() -> None:
    for *_, module in table("SGLang"):
        assert (ROOT / "python/dsv4_npu_ops/engines/sglang" / module.strip("`")).exists(), module


def test_ops_exist() -> None:
    cells = [row[1] for section in ("SGLang", "vLLM-Ascend", "Other engines") for row in table(section)]
    names = {name for cell in cells for name in re.findall(r"`([A-Za-z_.0-9]+)", cell)}
    fields = {"prefill", "final", "verify", "slot"}
    assert len(names) > 20
    owners = ["", ".graph", ".disagg", ".weights", ".speculative", ".ops.extend_from_lists"]
    modules = [importlib.import_module(f"dsv4_npu_ops{owner}") for owner in owners] + [d.RequestTables]
    for name in names - fields:
        op, _, overload = name.partition(".")
        is_overload = overload in getattr(getattr(torch.ops.dsv4_npu_ops, op, None), "overloads", list)()
        assert is_overload or any(hasattr(module, name.split(".")[-1]) for module in modules), name
