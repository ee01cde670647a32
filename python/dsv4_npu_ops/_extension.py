"""Loads the compiled extension, which registers ``torch.ops.dsv4_npu_ops``, if it was built for the torch beside it."""

import importlib
import platform
import sys
from pathlib import Path

import torch  # its libraries must be loaded before the extension


def _load() -> str:
    """Version of the extension.

    Raises:
        ImportError: there is none, or none for this torch or this Python; says what to do in a sentence.

    Source: docs/install.md.
    """
    package = Path(__file__).parent
    try:
        built_for = importlib.import_module("dsv4_npu_ops._built_for").TORCH_RELEASE
    except ModuleNotFoundError:
        raise ImportError(
            f"dsv4_npu_ops at {package} is not built: run `make build` in the checkout, or `pip install "
            "--no-build-isolation .` in the environment that has your torch (docs/install.md)"
        ) from None
    # A library for another minor release fails with an undefined symbol, or worse.
    release = ".".join(torch.__version__.split(".")[:2])
    if release != built_for:
        raise ImportError(
            f"dsv4_npu_ops at {package} was built for torch {built_for}, and this is torch {torch.__version__}: "
            f"install the build for torch {release}, or build it in this environment (docs/install.md)"
        )
    try:
        return importlib.import_module("dsv4_npu_ops._C").version
    except ModuleNotFoundError:
        found = ", ".join(path.name for path in package.glob("_C.*.so")) or "none"
        raise ImportError(
            f"dsv4_npu_ops at {package} has no extension that Python {platform.python_version()} loads (found: {found}"
            f"; expected: _C.abi3.so): build it again with {sys.executable}"
        ) from None


version = _load()
