"""Without an NPU the package works, and asking for one says what is missing. No torch_npu is needed here."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import dsv4_npu_ops as d
from dsv4_npu_ops import npu_library

pytestmark = pytest.mark.cpu_only


@pytest.fixture
def fake_torch_npu(tmp_path, monkeypatch):
    """Puts a torch_npu on the path whose import runs the given code."""
    assert "torch_npu" not in sys.modules

    def install(code: str) -> None:
        (tmp_path / "torch_npu").mkdir()
        (tmp_path / "torch_npu" / "__init__.py").write_text(code)
        monkeypatch.syspath_prepend(str(tmp_path))

    yield install
    sys.modules.pop("torch_npu", None)


@pytest.fixture
def some_library(tmp_path, monkeypatch):
    """A file where the library should be, which is none."""
    path = tmp_path / "libdsv4_npu.so"
    path.write_text("not a library")
    monkeypatch.setenv(npu_library.LIBRARY_VARIABLE, str(path))
    return path


def test_a_package_without_the_library_says_so_and_leaves_torch_npu_alone(fake_torch_npu, monkeypatch, tmp_path):
    monkeypatch.setenv(npu_library.LIBRARY_VARIABLE, str(tmp_path / "missing.so"))
    fake_torch_npu("raise AssertionError('imported')")
    assert "was built without its NPU library" in npu_library._load()
    assert "torch_npu" not in sys.modules


def test_a_library_without_torch_npu(some_library):
    assert npu_library._load() == "torch_npu is not installed"


def test_a_torch_npu_that_cannot_be_imported(some_library, fake_torch_npu):
    fake_torch_npu("raise ImportError('libhccl.so: cannot open shared object file')")
    assert npu_library._load() == "torch_npu cannot be imported: libhccl.so: cannot open shared object file"


def test_a_library_that_cannot_be_loaded(some_library, fake_torch_npu):
    fake_torch_npu("")
    assert npu_library._load().startswith(f"{some_library} cannot be loaded: ")


def test_asking_for_npu_says_what_is_missing():
    with pytest.raises(
        RuntimeError, match=r"^KVLayout: device 'npu:1' needs an NPU, and this package was built without"
    ):
        d.KVLayout(device="npu:1")
    with pytest.raises(RuntimeError, match=r"^device_errors: device 'npu' needs an NPU, and this package was built"):
        d.device_errors("npu")
    with pytest.raises(RuntimeError, match=r"^device_errors: device '0' needs an NPU"):
        d.device_errors(0)


def test_ops_on_tensors_of_an_npu_say_what_is_missing(tmp_path):
    """The kernel that the dispatcher would choose for such a tensor, called with CPU tensors; others cannot exist."""
    (tmp_path / "torch_npu.py").write_text("raise ImportError('there is no CANN')")
    script = f"""
import sys
sys.path.append({str(tmp_path)!r})
import torch, dsv4_npu_ops
keys = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)
rows = torch.zeros(2, 2)
for _ in range(2):
    try:
        torch.ops.dsv4_npu_ops.rope_gather.default.redispatch(keys, rows, rows, torch.zeros(1, dtype=torch.int64))
    except RuntimeError as error:
        print(error)
    try:
        dsv4_npu_ops.KVLayout(device="npu")  # looks for the library again
    except RuntimeError as error:
        pass
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("rope_gather on npu tensors needs an NPU, and this package was built without")


def test_a_cpu_has_no_device_errors():
    assert d.device_errors() == []
    assert d.device_errors("cpu", clear=True) == []
    with pytest.raises(ValueError, match="device_errors: device is meta, expected an NPU or the CPU"):
        d.device_errors("meta")


def test_the_texts_of_device_errors_cover_the_codes_of_the_ops():
    device_errors = import_module("dsv4_npu_ops.device_errors")
    root = Path(__file__).resolve().parents[1] / "csrc"

    def constants(path: str, first: str | None = None) -> dict[str, int]:
        """Constants of a header; with `first`, the run of lines that starts there."""
        text = (root / path).read_text()
        if first is not None:
            text = text[text.index(f"constexpr int32_t {first} ") :].split("\n\n")[0]
        return {name: int(value) for name, value in re.findall(r"constexpr int32_t (k\w+) = (\d+);", text)}

    named = {
        value: re.sub(r"(?<!^)([A-Z])", r"_\1", name.removeprefix("kErrorOp")).lower()
        for name, value in constants("common/device_error.h").items()
        if name.startswith("kErrorOp") and name != "kErrorOp"
    }
    spelled = {value: name.replace("write_tables", "write_req_tables") for value, name in named.items()}
    assert {value: name for value, (name, _) in device_errors._OPS.items()} == spelled
    rows = constants("common/step_rows.h", "kRowValid")
    position = constants("common/device_error.h")["kErrorPositionOutOfRange"]
    faults = {
        "rope_gather": {position},
        "step": {*rows.values(), position},
        "draft_steps": {rows[name] for name in ("kNegativeLength", "kBeyondContext", "kUnknownRequest", "kBeyondRing")},
    }
    for op, first in (
        ("write_req_tables", "kWriteValid"),
        ("compressor_metadata", "kRequestValid"),
        ("reserve_extend", "kSegmentValid"),
        ("release_pages", "kReleaseValid"),
        ("map_full_to_swa", "kMapValid"),
        ("advance_step", "kAdvanceValid"),
        ("share_pages", "kShareValid"),
        ("extend_from_lists", "kExtendValid"),
        ("token_slots", "kTokensValid"),
        ("c4_slots_from_full", "kC4SlotsTooMany"),
    ):
        faults[op] = {*constants(f"ops/{op}/{op}_index.h", first).values()}
    for name, meanings in device_errors._OPS.values():
        assert {0, *meanings} == {0, *faults[name]}, f"{name}: codes of the header, and texts in device_errors.py"


def test_staging_copies_nothing_on_a_cpu():
    staging = d.HostStaging("cpu")
    lengths = torch.tensor([3, 4])
    (got,) = staging.to_device(lengths)
    assert got is lengths
    assert staging.num_buffers == 0
    with pytest.raises(ValueError, match=r"HostStaging.to_device: tensors\[1\] is on cpu with strides \(2,\)"):
        staging.to_device(lengths, torch.arange(8)[::2])
