"""Where random values in tests come from: the same on every machine, in any order of tests, on any worker.

Profiles of hypothesis: "default" draws by the name and source of a test; "explore" by a seed (`make explore`);
"unshrunk" and "narrow" are for mutants, most of which fail: no shrinking, and a first pass of few examples.
"""

import random

import hypothesis
import numpy
import torch
from hypothesis import HealthCheck, Phase, register_random, settings
from hypothesis.internal.conjecture import providers


class TorchGenerator:
    """torch's generator as hypothesis wants it, which seeds it for each example and restores it afterwards."""

    seed = staticmethod(torch.default_generator.manual_seed)
    getstate = staticmethod(torch.default_generator.get_state)
    setstate = staticmethod(torch.default_generator.set_state)


torch_generator = TorchGenerator()  # hypothesis keeps a weak reference only


def seed_all() -> None:
    """Global generators start alike, whatever ran before on this worker."""
    random.seed(0)
    numpy.random.seed(0)
    torch_generator.seed(0)


def draw_no_constants() -> None:
    """Hypothesis also draws constants that it finds in the modules imported so far, which depend on what ran before. It
    has no setting for that: a function of its own is replaced.

    Raises:
        RuntimeError: this version of hypothesis does it by another function.
    """
    replaced = "_get_local_constants"
    if not callable(getattr(providers, replaced, None)) or not callable(getattr(providers, "Constants", None)):
        raise RuntimeError(
            f"hypothesis {hypothesis.__version__} has no {replaced} or Constants in {providers.__name__}: "
            "tests/random_draws.py must keep constants of modules out of draws in another way"
        )
    nothing = providers.Constants()
    providers._get_local_constants = lambda: nothing


def set_up(max_examples: int) -> None:
    """Registers the profiles and loads the default one."""
    register_random(torch_generator)
    draw_no_constants()
    default = settings(
        max_examples=max_examples,
        derandomize=True,
        database=None,
        # Two shared cores: these would report the neighbours, not the code.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.register_profile("default", parent=default)
    settings.register_profile("explore", parent=default, derandomize=False)
    unshrunk = settings(parent=default, phases=(Phase.explicit, Phase.generate))
    settings.register_profile("unshrunk", parent=unshrunk)
    settings.register_profile("narrow", parent=unshrunk, max_examples=6)
    settings.load_profile("default")
