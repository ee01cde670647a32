"""Models and references that the MTP tests share; transformers' generation is the slow part, so it runs once."""

import pytest
import torch
from mtp.small_models import build
from mtp.truth import Truth

NEW_TOKENS = 20


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Models this small only lose by more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def small_model():
    """Target and MTP layer in float32."""
    return build(seed=1)


@pytest.fixture(scope="session")
def truth(small_model):
    """transformers' continuation of a prompt by the target of ``small_model``."""
    return Truth(small_model[0], NEW_TOKENS)


@pytest.fixture(scope="session")
def double_model():
    """Target and MTP layer in float64."""
    return build(seed=2, dtype=torch.float64)


@pytest.fixture(scope="session")
def double_truth(double_model):
    """transformers' continuation of a prompt by the target of ``double_model``."""
    return Truth(double_model[0], NEW_TOKENS)
