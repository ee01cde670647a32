"""Loads the backend "npu" or "npu-sim" into this process: from then on, ops on CPU tensors run on an NPU.

A call copies the storages of its tensors to the device, so that views keep their strides, offsets and aliasing, runs
the op there and copies back: the storages of what the schema marks as mutated, and the results. The tests of the ops
and of the allocator need no change for that, and no operator but the one under test runs on the device.
"""

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from dsv4_npu_ops.npu_library import require_npu

NAMESPACE = "dsv4_npu_ops"


@dataclass(frozen=True)
class Variant:
    """Where and how the calls of a test run."""

    device: str
    side_stream: bool
    mode: str | None  # of the simulated device; None leaves it

    def __str__(self) -> str:
        stream = "side-stream" if self.side_stream else "default-stream"
        return "-".join(filter(None, (self.device, stream, self.mode)))


class Npu:
    """The NPU of this process: the first one and, if there is one, the second."""

    def __init__(self, simulated: bool) -> None:
        self._sim = _load_simulated() if simulated else None
        # The package was imported before the simulated device was there.
        require_npu(f"backend {'npu-sim' if simulated else 'npu'}")
        self._variant = Variant("npu:0", False, None)
        self._side_streams = [torch.npu.Stream(device=i) for i in range(min(2, torch.npu.device_count()))]
        last = f"npu:{len(self._side_streams) - 1}"
        lazy, asynchronous = ("LAZY", "ASYNCHRONOUS") if simulated else (None, None)
        self.variants = [
            Variant("npu:0", False, lazy),
            Variant(last, True, asynchronous),
        ]
        self._library = torch.library.Library(NAMESPACE, "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is overridden
            for name in torch._C._dispatch_get_all_op_names():
                if name.startswith(f"{NAMESPACE}::") and _has_npu_kernel(name):
                    self._library.impl(name, self._runner(name), "CPU")

    @contextlib.contextmanager
    def use(self, variant: Variant) -> Iterator[None]:
        """Calls run as the variant says."""
        self._set(variant)
        try:
            yield
        finally:
            self._set(Variant("npu:0", False, self.variants[0].mode))

    def take_errors(self) -> list[list[int]]:
        """The non-zero lanes of the first device's error words; clears them."""
        if self._sim is not None:
            self._sim.reset_errors()  # what a test left has failed that test
        lanes = torch.ops.dsv4_npu_ops.npu_error_lanes(0)
        if lanes is None:
            return []
        found = [lane for lane in lanes.cpu().tolist() if any(lane)]
        if found:
            lanes.copy_(torch.zeros(lanes.shape, dtype=lanes.dtype))
        return found

    def force_blocks(self, blocks: int) -> None:
        """Nothing: an NPU takes the blocks that the op asks for."""

    def _set(self, variant: Variant) -> None:
        self._variant = variant
        if self._sim is not None and variant.mode is not None:
            import npu_sim

            self._sim.reset_errors()
            self._sim.set_mode(npu_sim.Mode[variant.mode])

    def _runner(self, name: str) -> Callable[..., Any]:
        op_name, _, overload = name.removeprefix(f"{NAMESPACE}::").partition(".")
        op = getattr(getattr(torch.ops.dsv4_npu_ops, op_name), overload or "default")

        def run(*args: Any, **kwargs: Any) -> Any:
            device = torch.device(self._variant.device)
            side = self._side_streams[device.index] if self._variant.side_stream else None
            with torch.npu.device(device), torch.npu.stream(side), _sanitized():
                try:
                    return _call(op, device, args, kwargs)
                except RuntimeError as error:
                    if self._sim is not None and self._sim.kernel_errors():
                        error.args = (f"{error}\nthe simulated device found: {self._sim.kernel_errors()}",)
                    raise

        return run


def _load_simulated() -> Any:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "npu_sim"))
    import npu_sim

    return npu_sim.load()


def _has_npu_kernel(name: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")


def _sanitized() -> contextlib.AbstractContextManager:
    """torch_npu's sanitizer watches torch calls, but not those inside an op; here its watch goes on."""
    if "TORCH_NPU_SANITIZER" not in os.environ:
        return contextlib.nullcontext()
    import torch_npu.npu._sanitizer as sanitizer
    from torch_npu.npu._stream_check import NPUSanitizerDispatchMode

    return NPUSanitizerDispatchMode(sanitizer.npu_sanitizer.event_handler)


class _Copies:
    """Copies of host storages on a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._by_address: dict[int, tuple[Tensor, Tensor]] = {}  # the bytes on the host and on the device

    def copy(self, tensor: Tensor) -> Tensor:
        """The same view of the copied storage."""
        storage = tensor.untyped_storage()
        if not tensor.numel():
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self._device)
        if storage.data_ptr() not in self._by_address:
            host = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._by_address[storage.data_ptr()] = host, host.to(self._device)
        memory = self._by_address[storage.data_ptr()][1].untyped_storage()
        view = torch.empty(0, dtype=tensor.dtype, device=self._device)
        return view.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())

    def copy_back(self, written: list[Tensor]) -> None:
        """Takes over what the op may write, and checks that it wrote nothing else."""
        addresses = {tensor.untyped_storage().data_ptr() for tensor in written}
        for address, (host, memory) in self._by_address.items():
            if address in addresses:
                host.copy_(memory.cpu())
            else:
                assert torch.equal(host, memory.cpu()), "the op wrote to a tensor that its schema only reads"


def _call(op: Any, device: torch.device, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    copies = _Copies(device)
    named = dict(zip([argument.name for argument in op._schema.arguments], args, strict=False)) | kwargs

    def to_device(value: Any) -> Any:
        return copies.copy(value) if isinstance(value, Tensor) and value.is_cpu else value

    of_device = {name: tree_map(to_device, value) for name, value in named.items() if not name.startswith("host_")}
    arguments = named | of_device
    if all(value.device == device for value in tree_leaves(of_device) if isinstance(value, Tensor)):
        results = op(**arguments)
    else:  # a test of refused devices: torch would choose the other one's kernel
        results = op.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1), **arguments)
    written = [
        leaf
        for argument in op._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for leaf in tree_leaves(named.get(argument.name))
        if isinstance(leaf, Tensor)
    ]
    copies.copy_back(written)

    def to_host(result: Any) -> Any:
        if not isinstance(result, Tensor):
            return result
        assert result.device == device, f"{op}: a result is on {result.device}, expected {device}"
        return result.cpu()

    return tree_map(to_host, results)
