"""Test settings that every test shares."""

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(2)
# Two shared cores: a deadline would report the neighbours, not the code.
settings.register_profile(
    "default", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("default")
