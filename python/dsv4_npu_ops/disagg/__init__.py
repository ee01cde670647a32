"""Prefill-decode disaggregation: what of a request travels between two engines, and how it gets there.

``state_components`` describes the memory of an engine's pools, ``state_payloads`` the pages of one request; both are
in the order of ``StateType`` on either end. ``page_copies`` checks the two ends against each other and turns them into
addresses.
"""

from dsv4_npu_ops.disagg.components import (
    ComponentMismatch,
    StateComponent,
    StateType,
    match_components,
    state_components,
)
from dsv4_npu_ops.disagg.payloads import PageCopies, Payload, page_copies, state_payloads

__all__ = [
    "ComponentMismatch",
    "PageCopies",
    "Payload",
    "StateComponent",
    "StateType",
    "match_components",
    "page_copies",
    "state_components",
    "state_payloads",
]
