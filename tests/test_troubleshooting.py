"""Every message in docs/troubleshooting.md is one that the package gives, and is found by it."""

import copy
import importlib
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dsv4_npu_ops as d
from dsv4_npu_ops import npu_library
from dsv4_npu_ops.graph import BucketShape, GraphBuckets
from dsv4_npu_ops.layout import POOLS

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text().split("## Results without an error")[0]
MESSAGES = re.findall(r"^\| `([^`]+)` \| \S", PAGE, re.MULTILINE)


def cache(pages: int = 40, tokens: int = 130, **layout: object) -> tuple[d.RequestTables, d.KVAllocator]:
    """Tables and allocator; request 0 has some tokens."""
    shapes = d.KVLayout(16, 32, max_requests=4, max_context_len=256, num_pages=dict.fromkeys(POOLS, pages), **layout)
    tables = d.RequestTables(shapes)
    alloc = d.KVAllocator(shapes, tables)
    if tokens:
        alloc.alloc_extend([0], [0], [tokens])
    return tables, alloc


def rope() -> tuple[torch.Tensor, torch.Tensor]:
    return d.build_rope_tables(torch.ones(256, 4, dtype=torch.complex64), torch.float32)


def verify(request: int = 0, length: object = 130, **arguments: object) -> None:
    d.build_verify_step(cache()[0], torch.tensor([request]), torch.tensor([length]), 4, *rope(), **arguments)


def before_the_window() -> None:
    alloc = cache()[1]
    alloc.evict([0], [130])
    alloc.reserve_extend([0], [40], [44])


def into_a_shared_page() -> None:
    alloc = cache()[1]
    alloc.share_prefix([0], [1], [130])
    alloc.reserve_extend([0], [100], [104])


def not_reserved() -> None:
    tables, _ = cache()
    tables.check_reserved = True
    d.build_verify_step(tables, torch.tensor([0]), torch.tensor([142]), 4, *rope())


def too_large_for_the_buckets() -> None:
    GraphBuckets(cache()[0], [BucketShape(1, 4)], *rope(), token_rope={}).fill([0, 1], [1, 1], 4)


def staged_inside_a_capture() -> None:
    with d.graph_capture():
        d.HostStaging("cpu").copy_into(torch.zeros(1), torch.zeros(1))


CALLS: list[Callable[[], object]] = [
    lambda: cache(pages=4),
    lambda: cache()[1].alloc_extend([0], [0], [10]),
    lambda: cache()[1].reserve_extend([1], [0], [4]),
    lambda: cache()[1].alloc_extend([0, 0], [130, 130], [134, 134]),
    lambda: cache()[1].reserve_extend([0], [130], [260]),
    before_the_window,
    lambda: cache(ring_columns={"swa": 3}),
    into_a_shared_page,
    lambda: cache()[1].evict([0], [200]),
    lambda: cache()[1].restore_state(3),
    lambda: d.KVAllocator(d.KVLayout(num_pages={"full": 4}), cache()[0]),
    lambda: copy.deepcopy(cache()[1]),
    not_reserved,
    lambda: verify(request=9),
    lambda: verify(length=130.0),
    lambda: d.build_verify_step(
        cache()[0], torch.tensor([0]), torch.tensor([130]), 4, *(table[:, :6] for table in rope())
    ),
    lambda: verify(max_seq_len=100),
    lambda: d.rope_gather(*rope(), torch.tensor([256])),
    lambda: d.rope_gather(rope()[0].requires_grad_(), rope()[1], torch.tensor([1])),
    too_large_for_the_buckets,
    staged_inside_a_capture,
]


def message_of(call: Callable[[], object]) -> str:
    with pytest.raises(Exception) as raised:
        call()
    return str(raised.value)


def of_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the loader says of a folder with nothing built, with a build for another torch, and without an extension."""
    loader = "dsv4_npu_ops._extension"
    source = Path(importlib.import_module(loader).__file__)
    built_for = source.with_name("_built_for.py").read_text()
    monkeypatch.delitem(sys.modules, "dsv4_npu_ops._built_for", raising=False)
    monkeypatch.delitem(sys.modules, "dsv4_npu_ops._C", raising=False)
    found = []
    for i, content in enumerate((None, "TORCH_RELEASE = '1.0'\n", built_for)):
        folder = tmp_path / str(i) / "dsv4_npu_ops"
        folder.mkdir(parents=True)
        shutil.copy(source, folder)
        (folder / "__init__.py").write_text("")
        if content:
            (folder / "_built_for.py").write_text(content)
        for name in [name for name in sys.modules if name.split(".")[0] == "dsv4_npu_ops"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(folder.parent)
        importlib.invalidate_caches()
        found.append(message_of(lambda: importlib.import_module(loader)))
        monkeypatch.undo()
    return found


def of_the_npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What asking for an NPU says without a library, without torch_npu, and when either cannot be loaded."""
    library = tmp_path / "libdsv4_npu.so"
    monkeypatch.setattr(npu_library, "_refuse_npu_tensors", lambda: None)
    found = []

    def ask() -> None:
        monkeypatch.setattr(npu_library, "_missing", "not looked yet")
        found.append(message_of(lambda: d.KVLayout(device="npu")))

    monkeypatch.setenv(npu_library.LIBRARY_VARIABLE, str(library))
    ask()
    library.write_text("no library")
    monkeypatch.setattr(npu_library, "_has_torch_npu", lambda: False)
    ask()
    monkeypatch.setattr(npu_library, "_has_torch_npu", lambda: True)
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    ask()
    monkeypatch.setitem(sys.modules, "torch_npu", sys)
    ask()
    return found


def test_the_page_has_what_the_package_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [message_of(call) for call in CALLS]
    said += of_the_npu(tmp_path, monkeypatch)
    monkeypatch.undo()
    said += of_the_import(tmp_path, monkeypatch)
    patterns = {message: ".*".join(map(re.escape, message.split(".."))) for message in MESSAGES}
    for message, pattern in patterns.items():
        assert any(re.match(pattern, one) for one in said), f"nothing says: {message}"
    for one in said:
        assert any(re.match(pattern, one) for pattern in patterns.values()), f"not in the page: {one}"
