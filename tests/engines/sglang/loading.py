"""SGLang's NPU modules of one version, unmodified, on a CPU: what is not installed and not needed is a stub."""

import ast
import enum
import importlib
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Before the stubs: torch imports what is stubbed only for SGLang.
import torch
import torch._dynamo
import torch._inductor.compile_fx  # noqa: F401

import dsv4_npu_ops  # noqa: F401
from engines.stub_modules import StubFinder, bare_package, importer_is_below, is_one_of

NPU = "sglang.srt.hardware_backend.npu."

# Of SGLang itself: what bookkeeping does not touch, and what would pull in models, kernels and servers.
STUBBED_PARTS = (
    "sglang.kernels.ops.attention.fla",
    "sglang.kernels.ops.attention.flash_attn",
    "sglang.srt.configs.muse_glimmer",
    "sglang.srt.disaggregation",
    "sglang.srt.entrypoints",
    "sglang.srt.hardware_backend.npu.attention.ascend_hybrid_linear_attn_backend",
    "sglang.srt.layers.attention.fla",
    "sglang.srt.layers.attention.mamba",
    "sglang.srt.layers.moe",
    "sglang.srt.layers.quantization",
    "sglang.srt.lora",
    "sglang.srt.managers",
    "sglang.srt.models",
    "sglang.srt.multimodal",
    "sglang.srt.utils.hf_transformers",
    "sglang.srt.utils.hf_transformers_utils",
)
# Of others, also where they are installed.
STUBBED_ALWAYS = (
    "huggingface_hub",
    "safetensors",
    "sgl_kernel_npu",
    "torchvision",
    "transformers",
    "triton",
)
NEVER_STUBBED = ("dsv4_npu_ops", "numpy", "sglang", "torch", "torch_npu", "msgspec")


def load(folder: Path, version: str) -> SimpleNamespace:
    """The NPU modules by short names. Once a process.

    Args:
        folder: the unpacked wheel.
    """
    root = str(folder / "sglang")
    bare_package("sglang", root).__version__ = version
    bare_package("sglang.srt.configs", f"{root}/srt/configs", has_everything=True)
    has_torch_npu = "torch_npu" in sys.modules
    stubbed = STUBBED_ALWAYS if has_torch_npu else (*STUBBED_ALWAYS, "torch_npu")

    def missing(name: str) -> bool:
        top = name.partition(".")[0]
        known = top in NEVER_STUBBED or top in sys.stdlib_module_names
        return not known and importer_is_below(f"{root}/")

    sys.meta_path.insert(0, StubFinder(lambda name: is_one_of(name, STUBBED_PARTS + stubbed)))
    sys.meta_path.append(StubFinder(missing))  # after those who find what is installed
    modules = {
        "backend": "attention.ascend_dsv4_backend",
        "allocator": "dsv4.dsv4_allocator",
        "hooks": "dsv4.dsv4_common_hooks",
        "rope": "dsv4.dsv4_rope",
        "request_pool": "dsv4.dsv4_req_to_token_pool",
        "memory_pool": "dsv4.dsv4_memory_pool",
        "paged_allocator": "allocator_npu",
    }
    if not (folder / "sglang/srt/hardware_backend/npu/dsv4/dsv4_rope.py").exists():  # until 0.5.16
        del modules["rope"]
    loaded = SimpleNamespace(**{name: importlib.import_module(NPU + path) for name, path in modules.items()})
    loaded.swa_allocator = _first("sglang.srt.mem_cache.allocator.swa", "sglang.srt.mem_cache.swa_allocator")
    loaded.base_swa_pool = importlib.import_module("sglang.srt.mem_cache.base_swa_memory_pool")
    loaded.batch_info = importlib.import_module("sglang.srt.model_executor.forward_batch_info")
    _use_npu_allocator(loaded)
    _ascend_states(folder)
    return loaded


def _first(*names: str) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(f"none of {names}")


def _use_npu_allocator(loaded: SimpleNamespace) -> None:
    """The choice that SGLang makes on an NPU, and its own naive form of the kernel that it calls there."""
    loaded.swa_allocator._is_npu = True
    loaded.swa_allocator.NPUPagedTokenToKVPoolAllocator = loaded.paged_allocator.NPUPagedTokenToKVPoolAllocator

    class ExtendKernel:
        def __getitem__(self, grid: Any) -> Any:
            def run(prefix, seq, last_loc, free_pages, out, _rows, page_size, _longest):
                loaded.paged_allocator.alloc_extend_naive(
                    prefix, seq, last_loc, free_pages, out, page_size, free_pages.device
                )

            return run

    kernels = types.ModuleType("sgl_kernel_npu.mem_cache.allocator")
    kernels.alloc_extend_kernel = ExtendKernel()  # type: ignore[attr-defined]
    sys.modules[kernels.__name__] = kernels


def _ascend_states(folder: Path) -> None:
    """The names of what PD sends, which stand in a module that needs a transfer engine."""
    name = "sglang.srt.disaggregation.ascend.conn"
    source = folder / "sglang/srt/disaggregation/ascend/conn.py"
    module = types.ModuleType(name)
    if source.exists():
        for node in ast.parse(source.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name == "AscendStateType":
                strings = enum.StrEnum if hasattr(enum, "StrEnum") else enum.Enum
                names: dict[str, Any] = {"StateType": strings, "str": str, "Enum": enum.Enum, "enum": enum}
                exec(ast.unparse(node), names)
                module.AscendStateType = names["AscendStateType"]  # type: ignore[attr-defined]
    sys.modules[name] = module
