"""These tests need an instrumented build in the process; `make sanitize` has one."""

import os

import pytest

SANITIZER = os.environ.get("DSV4_SANITIZE", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "sanitize" in item.path.parts and SANITIZER not in ("address", "thread"):
            item.add_marker(pytest.mark.skip(reason="runs by make sanitize"))
