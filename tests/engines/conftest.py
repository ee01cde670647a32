"""Engines' wheels for the tests below; an engine's modules and the stubs beside them fill a process of their own.

Tests in kernels/ run the device kernels whose sources are in a wheel, and import nothing of the engine.
"""

import os

import pytest

from engines.wheels import WHEELS, Unavailable

ENGINES = {
    "sglang": ("sglang", os.environ.get("SGLANG_VERSION")),
    "vllm_ascend": ("vllm-ascend", os.environ.get("VLLM_ASCEND_VERSION")),
    "tokenspeed": ("tokenspeed", os.environ.get("TOKENSPEED_VERSION")),
    "kernels": ("vllm-ascend", os.environ.get("VLLM_ASCEND_VERSION")),
}
"""What a run tests, by folder; a run of another part of the tests names none."""


FROM_0_5_18 = ("test_allocator.py", "test_allocator_shadow.py", "test_payloads.py", "test_table_writes.py")
"""Tests of what the SGLang plug-in replaces from then on."""


def pytest_ignore_collect(collection_path, config):
    """Nothing is collected unless a run asks for the engine (make test-engines)."""
    folder = next((part for part in collection_path.parts if part in ENGINES), None)
    if folder is None:
        return None
    engine, version = ENGINES[folder]
    if version is None:
        return True
    if collection_path.name in FROM_0_5_18 and version in ("0.5.15", "0.5.16", "0.5.17"):
        return True
    try:
        WHEELS[engine, version].unpacked()
    except Unavailable as reason:
        if os.environ.get("DSV4_ENGINES") == "required":
            raise pytest.UsageError(str(reason)) from None
        config.stash.setdefault(_REASONS, set()).add(str(reason))
        return True
    return None


_REASONS = pytest.StashKey()


def pytest_terminal_summary(terminalreporter, config):
    for reason in config.stash.get(_REASONS, ()):
        terminalreporter.write_line(f"skipped: {reason}")


def pytest_sessionfinish(session, exitstatus):
    """No test is no failure where a wheel cannot be fetched."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash.get(_REASONS, None):
        session.exitstatus = pytest.ExitCode.OK
