"""The memory that an engine's pools consist of, by kind of state (docs/spec.md, prefill-decode disaggregation)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from torch import Tensor


class StateType(str, Enum):
    """Kinds of state that travel, in the order in which both ends list them."""

    SWA = "swa"
    """sliding-window KV of every layer, the MTP layer's included; slots of pool ``swa``"""
    C4 = "c4"
    """compressed entries of the ratio-4 layers; slots of pool ``c4``"""
    C128 = "c128"
    """compressed entries of the ratio-128 layers; slots of pool ``c128``"""
    INDEXER = "indexer"
    """the indexer's compressed keys of the ratio-4 layers; slots of pool ``c4`` too"""
    C4_STATE = "c4_state"
    """unfinished input of the ratio-4 compressors, attention's and indexer's; slots of pool ``c4_state``"""
    C128_STATE = "c128_state"
    """unfinished input of the ratio-128 compressors; slots of pool ``c128_state``"""

    @property
    def pool(self) -> str:
        """The pool whose slots the tensors of this kind have."""
        return "c4" if self is StateType.INDEXER else self.value

    def __str__(self) -> str:  # as enum.StrEnum has it, which Python 3.10 has not
        return self.value


class CompressorTensors(Protocol):
    """One compressor's tensors, both with a slot per row."""

    @property
    def entries(self) -> Tensor: ...
    @property
    def state(self) -> Tensor: ...


class LayerTensors(Protocol):
    """One layer's tensors, such as ``dsv4_npu_ops.mtp.pools.LayerPools``."""

    @property
    def ratio(self) -> int: ...
    @property
    def swa(self) -> Tensor: ...
    @property
    def compressor(self) -> CompressorTensors | None: ...
    @property
    def indexer(self) -> CompressorTensors | None: ...


class PoolTensors(Protocol):
    """All layers' tensors, such as ``dsv4_npu_ops.mtp.pools.KVPools``; ``nextn`` is None without an MTP layer."""

    def page_size_of(self, pool: str, /) -> int: ...
    @property
    def layers(self) -> Sequence[LayerTensors]: ...
    @property
    def nextn(self) -> LayerTensors | None: ...


class ComponentMismatch(ValueError):
    """The two ends of a transfer do not describe the same state; nothing was sent."""


@dataclass(frozen=True)
class StateComponent:
    """One kind of state: a tensor a layer (two for ``c4_state``), in layer order.

    Attributes:
        type: which kind.
        data_ptrs: address of each tensor.
        data_lens: bytes of each tensor, the reserved page included.
        item_lens: bytes of one page of each tensor; page i starts at ``data_ptr + i * item_len``.
    """

    type: StateType
    data_ptrs: tuple[int, ...]
    data_lens: tuple[int, ...]
    item_lens: tuple[int, ...]


def state_components(pools: PoolTensors) -> list[StateComponent]:
    """The components of an engine's pools, in the order of ``StateType``. A kind that no layer has is left out.

    Args:
        pools: the tensors, on any device; they must stay where they are while a transfer engine knows them.

    Returns:
        at most one component a type. The MTP layer's window comes after the target's layers.

    Raises:
        ValueError: a tensor is not contiguous or does not consist of whole pages; a layer lacks a compressor that its
            ratio needs, or has another ratio than 0, 4 or 128.

    Source: docs/spec.md, prefill-decode disaggregation.
    """
    tensors: dict[StateType, list[Tensor]] = {kind: [] for kind in StateType}
    for index, layer in enumerate([*pools.layers, *([pools.nextn] if pools.nextn is not None else [])]):
        tensors[StateType.SWA].append(layer.swa)
        if layer.ratio == 0:
            continue
        if layer.ratio not in (4, 128):
            raise ValueError(f"state_components: layer {index} has ratio {layer.ratio}, expected 0, 4 or 128")
        if layer.compressor is None or (layer.indexer is None) == (layer.ratio == 4):
            expected = "a compressor and an indexer" if layer.ratio == 4 else "a compressor and no indexer"
            raise ValueError(f"state_components: layer {index} has ratio {layer.ratio}, expected {expected}")
        entries, state = (
            (StateType.C4, StateType.C4_STATE) if layer.ratio == 4 else (StateType.C128, StateType.C128_STATE)
        )
        tensors[entries].append(layer.compressor.entries)
        tensors[state].append(layer.compressor.state)
        if layer.indexer is not None:
            tensors[StateType.INDEXER].append(layer.indexer.entries)
            tensors[state].append(layer.indexer.state)
    return [_component(kind, held, pools.page_size_of(kind.pool)) for kind, held in tensors.items() if held]


def _component(kind: StateType, tensors: list[Tensor], page_size: int) -> StateComponent:
    for i, tensor in enumerate(tensors):
        if not tensor.is_contiguous():
            raise ValueError(
                f"state_components: tensor {i} of {kind.value} has strides {tensor.stride()} for shape "
                f"{list(tensor.shape)}, expected a contiguous tensor"
            )
        if not tensor.shape[0] or tensor.shape[0] % page_size:
            raise ValueError(
                f"state_components: tensor {i} of {kind.value} has {tensor.shape[0]} slots, "
                f"expected whole pages of {page_size}"
            )
    lens = [tensor.numel() * tensor.element_size() for tensor in tensors]
    return StateComponent(
        kind,
        tuple(tensor.data_ptr() for tensor in tensors),
        tuple(lens),
        tuple(length // (tensor.shape[0] // page_size) for length, tensor in zip(lens, tensors, strict=True)),
    )


def match_components(ours: Sequence[StateComponent], theirs: Sequence[StateComponent]) -> None:
    """Checks that two ends list the same kinds, with tensors of the same page sizes. The number of pages may differ.

    Raises:
        ComponentMismatch: naming the first difference: a kind that is missing, not known to us or at another place; a
            number of tensors; a page size in bytes.

    Source: docs/spec.md, prefill-decode disaggregation.
    """
    names = [[component.type.value for component in end] for end in (ours, theirs)]
    if names[0] != names[1]:
        raise ComponentMismatch(f"components: expected {', '.join(names[0])}, got {', '.join(names[1]) or 'none'}")
    for our, their in zip(ours, theirs, strict=True):
        if not len(their.data_ptrs) == len(their.item_lens) == len(their.data_lens) == len(our.data_ptrs):
            raise ComponentMismatch(
                f"component {our.type.value}: expected {len(our.data_ptrs)} tensors, got {len(their.data_ptrs)} "
                f"addresses, {len(their.data_lens)} lengths and {len(their.item_lens)} page sizes"
            )
        if our.item_lens != their.item_lens:
            raise ComponentMismatch(
                f"component {our.type.value}: expected pages of {list(our.item_lens)} bytes, "
                f"got {list(their.item_lens)}"
            )
