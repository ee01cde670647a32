"""vLLM-Ascend's modules of one version, unmodified, on a CPU: vLLM and what else is not installed is a stub.

What of vLLM itself does bookkeeping stands here in a few lines: the fields of its batch metadata, its host and device
buffers, its slot mapping of tokens.
"""

import enum
import importlib
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Before the stubs: torch imports what is stubbed only for the engine.
import torch
import torch._dynamo
import torch._inductor.compile_fx

import dsv4_npu_ops  # noqa: F401
from engines.stub_modules import Anything, StubFinder, bare_package, importer_is_below, is_one_of

PAD = -1

# Packages whose own __init__ imports models, kernels or patches.
BARE_PACKAGES = ("", ".ops", ".models", ".spec_decode", ".quantization", ".distributed.kv_transfer", ".patch.worker")
# Parts that bookkeeping does not touch.
STUBBED_PARTS = (
    "vllm_ascend.compilation",
    "vllm_ascend.eplb",
    "vllm_ascend.models",
    "vllm_ascend.ops.fused_moe",
    "vllm_ascend.ops.triton.fla",
    "vllm_ascend.patch",
    "vllm_ascend.quantization",
    "vllm_ascend.sample",
    "vllm_ascend.vllm_ascend_C",
)
STUBBED_ALWAYS = ("huggingface_hub", "mooncake", "safetensors", "torchvision", "transformers", "triton")
NEVER_STUBBED = ("dsv4_npu_ops", "numpy", "torch", "torch_npu", "typing_extensions", "vllm_ascend")


# Classes that the engine asks for by isinstance, and that nothing here is one of, or that it has for bases.
CLASSES = {
    "distributed.kv_transfer.kv_connector.v1.base": ("KVConnectorBase_V1", "SupportsHMA"),
    "v1.attention.backends.gdn_attn": ("GDNAttentionMetadataBuilder",),
    "v1.kv_cache_interface": ("EncoderOnlyAttentionSpec", "MambaSpec", "UniformTypeKVCacheSpecs"),
}


@dataclass
class CommonAttentionMetadata:
    """What vLLM's builders are told of a batch."""

    query_start_loc: torch.Tensor
    query_start_loc_cpu: torch.Tensor
    seq_lens: torch.Tensor
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool = True
    logits_indices_padded: torch.Tensor | None = None
    num_logits_indices: int | None = None
    encoder_seq_lens: torch.Tensor | None = None
    encoder_seq_lens_cpu: Any = None
    dcp_local_seq_lens: torch.Tensor | None = None
    dcp_local_seq_lens_cpu: torch.Tensor | None = None
    is_prefilling: torch.Tensor | None = None
    seq_lens_cpu_upper_bound: torch.Tensor | None = None
    _seq_lens_cpu: torch.Tensor | None = None
    _num_computed_tokens_cpu: torch.Tensor | None = None

    def batch_size(self) -> int:
        return self.seq_lens.shape[0]


class CpuGpuBuffer:
    """A tensor on the host, the same on the device, and the first as an array."""

    def __init__(self, *size: int, dtype: torch.dtype, device: Any = "cpu", pin_memory: bool = False) -> None:
        self.cpu = torch.zeros(*size, dtype=dtype)
        self.gpu = self.cpu.clone()
        self.np = self.cpu.numpy()

    def copy_to_gpu(self, n: int | None = None) -> torch.Tensor:
        return self.gpu.copy_(self.cpu) if n is None else self.gpu[:n].copy_(self.cpu[:n])


class CUDAGraphMode(enum.Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2


class SpecDecodeBaseProposer:
    """The base of all that draft."""


class EagleProposer(SpecDecodeBaseProposer):
    """The base of those that draft one token at a time."""


class SlotMappingKernel:
    """vLLM's: slot of each token by its position, the padding value up to the end of the buffer."""

    def __getitem__(self, grid: Any) -> Any:
        def run(tokens, capacity, offsets, positions, table, stride, block, out, **options):
            rows = torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets[1:] - offsets[:-1])[:tokens]
            place = rows * stride + positions[: len(rows)] // block
            blocks = table.flatten()[place.clamp(max=table.numel() - 1)]
            out[: len(rows)] = blocks * block + positions[: len(rows)] % block
            out[len(rows) : capacity] = options["PAD_ID"]

        return run


def load(folder: Path, version: str) -> SimpleNamespace:
    """The modules by short names. Once a process.

    Args:
        folder: the unpacked wheel.
    """
    root = str(folder / "vllm_ascend")
    for name in BARE_PACKAGES:
        bare_package(f"vllm_ascend{name}", root + name.replace(".", "/"), has_everything=True)
    sys.modules["vllm_ascend"].__path__ = [root]
    _version(version)
    stubbed = STUBBED_ALWAYS if "torch_npu" in sys.modules else (*STUBBED_ALWAYS, "torch_npu")

    def missing(name: str) -> bool:
        top = name.partition(".")[0]
        known = top in NEVER_STUBBED or top in sys.stdlib_module_names
        return not known and importer_is_below(f"{root}/")

    sys.meta_path.insert(0, StubFinder(lambda name: is_one_of(name, (*STUBBED_PARTS, *stubbed))))
    sys.meta_path.append(StubFinder(lambda name: is_one_of(name, ("vllm",)) or missing(name)))
    _vllm()
    had_npu = hasattr(torch, "npu")
    if not had_npu:
        torch.npu = Anything()
    modules = {
        "dsa": "attention.dsa_v1",
        "utils": "attention.utils",
        "device_op": "device.device_op",
        "rope": "ops.rope_dsv4",
        "block_table": "worker.block_table",
        "connector": "distributed.kv_transfer.kv_p2p.mooncake_connector",
        "hybrid_connector": "distributed.kv_transfer.kv_p2p.mooncake_hybrid_connector",
        "proposer": "spec_decode.llm_base_proposer",
        "dflash": "spec_decode.dflash_proposer",
        "runner": "worker.model_runner_v1",
        "spec_utils": "spec_decode.utils",
    }
    loaded = SimpleNamespace(**{name: importlib.import_module(f"vllm_ascend.{path}") for name, path in modules.items()})
    if not had_npu:
        del torch.npu
    return loaded


def _version(version: str) -> None:
    module = types.ModuleType("vllm_ascend._version")
    module.__version__ = module.version = version  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


def _vllm() -> None:
    """Values of vLLM's that are no stubs."""

    def module(name: str) -> Any:
        return importlib.import_module(f"vllm.{name}")

    for owner, names in CLASSES.items():
        for name in names:
            setattr(module(owner), name, type(name, (), {}))

    groups = SimpleNamespace(world_size=1, rank_in_group=0)
    distributed = module("distributed")
    distributed.get_pcp_group = distributed.get_dcp_group = lambda: groups
    distributed.get_tensor_model_parallel_world_size = lambda: 1
    config = module("config")
    config.CUDAGraphMode = CUDAGraphMode
    math_utils = module("utils.math_utils")
    math_utils.cdiv = lambda a, b: -(-a // b)
    backends = module("v1.attention.backends.utils")
    backends.CommonAttentionMetadata, backends.PAD_SLOT_ID = CommonAttentionMetadata, PAD
    module("v1.spec_decode.utils").PADDING_SLOT_ID = PAD
    module("v1.spec_decode.llm_base_proposer").SpecDecodeBaseProposer = SpecDecodeBaseProposer
    module("v1.spec_decode.eagle").EagleProposer = EagleProposer
    module("v1.utils").CpuGpuBuffer = CpuGpuBuffer
    module("v1.worker.block_table")._compute_slot_mapping_kernel = SlotMappingKernel()
    module("v1.worker.cp_utils").get_total_cp_world_size = lambda: 1
    module("triton_utils").HAS_TRITON = False
    module("platforms").current_platform = SimpleNamespace(device_type="cpu")
