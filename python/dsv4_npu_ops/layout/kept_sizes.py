"""What is known of calls by their sizes."""

from __future__ import annotations

from typing import Any, TypeVar

Known = TypeVar("Known")

_MOST = 256


class KeptSizes(dict[Any, Known]):
    """By size, and whatever else decides it. Beyond 256 of them all are forgotten: sizes that go on changing do not
    come back, and those that do are soon known again."""

    def keep(self, key: Any, known: Known) -> Known:
        """Adds one, and gives it back."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = known
        return known
