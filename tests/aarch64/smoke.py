"""Imports the package beside torch alone, and says of what it consists. Run by aarch64.mk, in the emulator."""

import platform
import sys
from importlib.metadata import requires, version

import torch

import dsv4_npu_ops as d

assert platform.machine() == "aarch64", platform.machine()
release = ".".join(torch.__version__.split(".")[:2])
assert d.__version__ == version("dsv4_npu_ops") == d.__version__.split("+")[0] + f"+torch{release}", d.__version__
assert f"torch=={release}.*" in (requires("dsv4_npu_ops") or []), requires("dsv4_npu_ops")
missing = [name for name in ("numpy", "pytest", "hypothesis") if name not in sys.modules]
assert len(missing) == 3, f"imported beside torch: {missing}"
cos = torch.arange(8.0).reshape(4, 2)
assert d.rope_gather(cos, cos, torch.tensor([2, 0]))[0].tolist() == [[4.0, 5.0], [0.0, 1.0]]
# The kinds of errors, which torch translates in its own way.
for kind, sin, position in ((IndexError, cos, 4), (ValueError, cos[:3], 0)):
    try:
        d.rope_gather(cos, sin, torch.tensor([position]))
    except kind as error:
        print(f"{kind.__name__}: {error}")
    else:
        raise AssertionError(f"expected {kind.__name__}")
print(f"dsv4_npu_ops {d.__version__} beside torch {torch.__version__}, Python {platform.python_version()}, aarch64")
