"""The package's NPU library: where it is, when it is loaded, and what is missing when it is not (docs/npu.md)."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

import torch

LIBRARY_VARIABLE = "DSV4_NPU_LIBRARY"
"""Names another library than the one in the package, as the tests on the simulated NPU do."""

_missing: str | None = "import dsv4_npu_ops has not finished"
_refusals: list[torch.library.Library] = []


def require_npu(asked_for: str) -> None:
    """Raises unless ops can run on ``npu``. What was missing before may be there by now, so it is looked for again.

    Args:
        asked_for: what needs it, for the message.

    Raises:
        RuntimeError: says what is missing: torch_npu, the library, or a library for this kind of NPU.

    Source: docs/spec.md, errors.
    """
    if _missing is not None:
        load_npu_library()
    if _missing is not None:
        raise RuntimeError(f"{asked_for} needs an NPU, and {_missing}")


def is_loaded() -> bool:
    """Whether ops can run on ``npu``."""
    return _missing is None


def load_npu_library() -> None:
    """Loads the library if there is one and torch_npu is installed; otherwise asking for ``npu`` says what is missing.

    torch_npu is imported only for a library that exists, and nothing that goes wrong here keeps the rest of the
    package from working.
    """
    global _missing
    while _refusals:
        _refusals.pop()._destroy()
    _missing = _load()
    # A library for another kind of NPU has its kernels registered, and they raise by themselves.
    if _missing is not None and _has_torch_npu() and not hasattr(torch.ops.dsv4_npu_ops, "npu_soc_versions"):
        _refuse_npu_tensors()


def _has_torch_npu() -> bool:
    return "torch_npu" in sys.modules or importlib.util.find_spec("torch_npu") is not None


def _load() -> str | None:
    path = Path(os.environ.get(LIBRARY_VARIABLE) or Path(__file__).with_name("libdsv4_npu.so"))
    if not path.is_file():
        return f"this package was built without its NPU library: there is no {path} (docs/npu.md says how to build it)"
    if not _has_torch_npu():
        return "torch_npu is not installed"
    try:
        importlib.import_module("torch_npu")
    except Exception as error:  # whatever a broken installation raises
        return f"torch_npu cannot be imported: {error}"
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        return f"{path} cannot be loaded: {error}"
    built_for, device, runs = torch.ops.dsv4_npu_ops.npu_soc_versions()
    # A host without a device knows no kind; the first op checks again.
    if device and not runs:
        return f"{path} was built for {built_for}, and the device is {device}: build with DSV4_SOC_VERSION={device}"
    return None


def _refuse_npu_tensors() -> None:
    """Gives every op a kernel for ``npu`` tensors that raises; the dispatcher's own message would not say why.

    Without torch_npu there are no such tensors.
    """
    library = torch.library.Library("dsv4_npu_ops", "IMPL", "PrivateUse1")
    for op in torch._C._dispatch_get_all_op_names():
        if op.startswith("dsv4_npu_ops::"):
            _refuse(library, op.removeprefix("dsv4_npu_ops::"))
    _refusals.append(library)


def _refuse(library: torch.library.Library, op: str) -> None:
    def refuse(*arguments: object, **keyword_arguments: object) -> None:
        raise RuntimeError(f"{op} on npu tensors needs an NPU, and {_missing}")

    library.impl(op, refuse)
