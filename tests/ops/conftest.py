"""The backends that every op test runs on."""

import pytest
import torch


@pytest.fixture(params=["cpu"])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Device under test."""
    return torch.device(request.param)
