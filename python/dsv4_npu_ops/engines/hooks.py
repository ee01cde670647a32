"""Functions of an engine that are replaced, and what happens when they are not as expected."""

from __future__ import annotations

import functools
import inspect
import logging
import pkgutil
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dsv4_npu_ops.engines.settings import Mode
from dsv4_npu_ops.graph_capture import is_capturing

logger = logging.getLogger("dsv4_npu_ops.engines")


class Unexpected(Exception):
    """A replacement was given what it does not know, and has changed nothing: the engine's own function is called.

    In a shadow run it has been called, or is, and nothing is compared.
    """


@dataclass(frozen=True)
class Hook:
    """One function of an engine and what replaces it.

    Attributes:
        target: dotted path of the function or method.
        replacement: called with the engine's function and then the arguments of the call; its parameters after the
            first are those of the engine's function, which is how a changed signature is noticed.
        first, last: versions of the engine, from and to, for which the function is known.
        shadow: the same, for shadow runs: lets the engine's function do its work and compares. None: nothing is done.
        placed: for a function that is called so often that a call between would be felt: from the engine's function to
            what is called in its place, which calls the engine's where a replacement would have raised Unexpected.
        falls_back: the replacement calls the engine's function itself and never raises Unexpected, so that nothing has
            to stand around it.
    """

    target: str
    replacement: Callable[..., Any]
    first: str
    last: str
    shadow: Callable[..., Any] | None = None
    placed: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    falls_back: bool = False

    @property
    def name(self) -> str:
        """Class and function, or the function."""
        parts = self.target.split(".")
        return ".".join(parts[-2:]) if parts[-2][:1].isupper() else parts[-1]


@dataclass(frozen=True)
class Decision:
    """Whether a hook is used, and why not."""

    hook: Hook
    refused: str | None = None


_said: set[str] = set()
_NUMBER = re.compile(r"\b\d+\b")


def say_once(message: str) -> None:
    """A warning in the engine's log, once a process: the same words with other numbers are not said again."""
    words = _NUMBER.sub("0", message)
    if words not in _said:
        _said.add(words)
        logger.warning("dsv4_npu_ops: %s", message)


def version_tuple(version: str) -> tuple[int, ...]:
    """``0.5.23.post1`` as ``(0, 5, 23)``: the leading numbers."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def decide(hooks: Iterable[Hook], version: str) -> list[Decision]:
    """Which hooks fit an engine of this version: those of the version whose function is there with its parameters.

    Hooks of other versions are left out when another hook has the same target, and refused otherwise.
    """
    hooks = list(hooks)
    at = version_tuple(version)
    fitting = [hook for hook in hooks if version_tuple(hook.first) <= at <= version_tuple(hook.last)]
    decisions = [Decision(hook, _fault(hook)) for hook in fitting]
    known = {hook.target for hook in fitting}
    for hook in hooks:
        if hook.target not in known:
            known.add(hook.target)
            decisions.append(Decision(hook, f"known from {hook.first} to {hook.last}, not in {version}"))
    return decisions


def _fault(hook: Hook) -> str | None:
    try:
        original = pkgutil.resolve_name(hook.target)
    except Exception as error:  # whatever an engine's module raises where something that it needs is not there
        return f"not found ({error})"
    given, expected = _parameters(original), _parameters(hook.replacement)[1:]
    return None if given == expected else f"takes ({', '.join(given)}), expected ({', '.join(expected)})"


def _parameters(function: Callable[..., Any]) -> list[str]:
    return [str(p.replace(annotation=p.empty)) for p in inspect.signature(function).parameters.values()]


def around(hook: Hook, mode: Mode) -> Callable[..., Any] | None:
    """What is called in the engine's place: with its function and the arguments; None where the mode has nothing."""
    if mode is Mode.SHADOW:
        return None if hook.shadow is None else _beside(hook, hook.shadow)
    function = hook.replacement
    if hook.falls_back:
        return function

    @functools.wraps(function)
    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(original, *args, **kwargs)
        except Unexpected as reason:
            say_engines_own(hook, reason)
            return original(*args, **kwargs)

    return call


def instead(hook: Hook, mode: Mode) -> Callable[[Callable[..., Any]], Callable[..., Any]] | None:
    """For an engine without a registry of hooks: from its function to what is called in its place, as ``around``.

    A call of its own between the two would be felt: builders are called several times a step.
    """
    if mode is Mode.ON and hook.placed is not None:
        return hook.placed
    function = hook.replacement if mode is not Mode.SHADOW else around(hook, mode)
    if function is None:
        return None

    def place(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(original, *args, **kwargs)
            except Unexpected as reason:
                say_engines_own(hook, reason)
                return original(*args, **kwargs)

        return call

    return place


def say_engines_own(hook: Hook, reason: Unexpected) -> None:
    """That a replacement has met what it does not know."""
    say_once(f"{hook.name} is the engine's own for calls like this: {reason}")


def _beside(hook: Hook, shadow: Callable[..., Any]) -> Callable[..., Any]:
    """The engine's function, called once whatever becomes of the comparison: it may change what it is given."""

    @functools.wraps(shadow)
    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if is_capturing():  # nothing can be compared there
            return original(*args, **kwargs)
        results: list[Any] = []
        is_called = False

        def once(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_called
            is_called = True
            results.append(original(*args, **kwargs))
            return results[0]

        try:
            return shadow(once, *args, **kwargs)
        except Exception as error:
            if is_called and not results:  # the engine's own
                raise
            reason = str(error) if isinstance(error, Unexpected) else f"{type(error).__name__}: {error}"
            say_once(f"{hook.name} was not compared: {reason}")
        return results[0] if results else original(*args, **kwargs)

    return call
