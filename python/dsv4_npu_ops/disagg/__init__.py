"""Prefill-decode disaggregation: what of a request travels between two engines, and how it gets there.

``state_components`` describes the memory of an engine's pools, ``state_payloads`` the pages of one request; both are
in the order of ``StateType`` on either end. ``page_copies`` checks the two ends against each other and turns them
into addresses, which a ``TransferEngine`` copies.

``disagg.prefill`` and ``disagg.decode`` are two workers around ``dsv4_npu_ops.mtp.Runner`` (extra ``mtp``) that talk
over ``disagg.channel``; ``disagg.mooncake`` is the transfer engine that they run on (extra ``disagg``).
"""

from dsv4_npu_ops.disagg.components import (
    ComponentMismatch,
    StateComponent,
    StateType,
    match_components,
    state_components,
)
from dsv4_npu_ops.disagg.payloads import PageCopies, Payload, page_copies, state_payloads
from dsv4_npu_ops.disagg.transfer import TransferEngine, TransferFailed

__all__ = [
    "ComponentMismatch",
    "PageCopies",
    "Payload",
    "StateComponent",
    "StateType",
    "TransferEngine",
    "TransferFailed",
    "match_components",
    "page_copies",
    "state_components",
    "state_payloads",
]
