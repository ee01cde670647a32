"""These tests start processes and need Mooncake; `make test-transfer` sets both up."""

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not (reason := _reason_to_skip()):
        return
    for item in items:
        if "transfer" in item.path.parts:
            item.add_marker(pytest.mark.skip(reason=reason))


def _reason_to_skip() -> str:
    if not os.environ.get("DSV4_TRANSFER"):
        return "runs by make test-transfer"
    try:
        import mooncake.engine  # noqa: F401
    except ImportError as error:
        return f"Mooncake's transfer engine does not load: {error}"
    return ""
