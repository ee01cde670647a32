"""Metadata objects of the engine, which a step has many of."""

from __future__ import annotations

from typing import Any


def instance(kind: type, fields: dict[str, Any]) -> Any:
    """An object that takes over these fields, and has defaults for the rest.

    A constructor of 25 keywords, called for each builder and part of a step, costs more than the step's launch.
    """
    made: Any = object.__new__(kind)
    made.__dict__ = fields
    return made
