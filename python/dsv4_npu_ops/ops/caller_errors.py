"""Errors of the ops in the words of who called: public functions and their arguments (docs/spec.md, errors).

The checks lie in the ops, which name themselves and the arguments of their schemas. What a caller wrote is another
function and often a field of an argument. Until something is raised this costs one more call of a Python function.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import signature
from operator import index
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

TABLES: dict[str, str] = {
    "max_context_len": "tables.max_context_len",
}
"""What the ops call the parts of ``tables``."""

# What an op raises, and what Python or torch does about a value of another type.
_OF_OPS = (ValueError, RuntimeError, IndexError)
_HANDLED = (*_OF_OPS, AttributeError, TypeError, OverflowError)

# "step: out.start_pos ..": who says it and what it is about.
_MESSAGE = re.compile(r"([\w.]+): (.*)", re.DOTALL)
# Whom public functions call: ops, and what makes their rows and buffers.
_MAKERS = re.compile(r"StepRows\.\w+|\w+\.empty")
# Where a message names an argument: a buffer, at its start, behind "like", and as an identifier that is no word.
_ARGUMENT = re.compile(r"\bout\.[a-z]\w*|(?:^|(?<= like )|(?<=\())[a-z]\w*|\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")


def field_names(path: str, kind: type) -> dict[str, str]:
    """``{"start_pos": "out.metadata.start_pos", ..}``: what an op calls the tensors of a result, and where they are."""
    names: dict[str, str] = {}
    hints = get_type_hints(kind)
    for field in fields(kind):
        inner = hints[field.name]
        if is_dataclass(inner) and isinstance(inner, type):
            names |= field_names(f"{path}.{field.name}", inner)
        else:
            names[field.name] = f"{path}.{field.name}"
    return names


def caller_errors(
    names: Mapping[str, str] | None = None, *, out: Mapping[str, str] | None = None
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Makes the errors of a public function speak of it and its arguments, whatever op has raised them.

    Args:
        names: what the ops call an argument, and what callers write for it.
        out: the same for the buffers of ``out``, where the call has some. Without, they lose their ``out.``: the caller
            sees them as results.

    Source: docs/spec.md, errors.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(function)
        def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            try:
                return function(*arguments, **named)
            except _HANDLED as error:
                if type(error) not in _HANDLED:
                    raise  # a class of its own, such as PoolExhausted, says what it means
                wrong = wrong_type(function, arguments, named)
                if wrong is not None:
                    raise ValueError(f"{function.__name__}: {wrong}") from None
                if isinstance(error, _OF_OPS):
                    of_out = (out or {}) if has_out(function, arguments, named) else None
                    error.args = (in_words_of(function.__name__, names or {}, of_out, str(error)),)
                raise

        return call

    return decorate


def has_out(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether the call was given buffers."""
    try:
        return signature(function).bind(*arguments, **named).arguments.get("out") is not None
    except TypeError:
        return False


def in_words_of(function: str, names: Mapping[str, str], out: Mapping[str, str] | None, message: str) -> str:
    """The message of an op as one of ``function``, with the arguments' names replaced; out: None without buffers."""
    match = _MESSAGE.fullmatch(message)
    if match is None or not (_MAKERS.fullmatch(match[1]) or hasattr(torch.ops.dsv4_npu_ops, match[1])):
        return message

    def word(found: re.Match[str]) -> str:
        if out is None:
            return names.get(found[0], found[0].removeprefix("out."))
        return out.get(found[0], names.get(found[0], found[0]))

    return f"{function}: {_ARGUMENT.sub(word, match[2])}"


def wrong_type(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str | None:
    """What the first argument that is not of its declared type is, and what was expected; None when all are."""
    hints = get_type_hints(function)
    try:
        bound = signature(function).bind(*arguments, **named)
    except TypeError:
        return None  # the number or names of the arguments are wrong, which Python says well
    for name, value in bound.arguments.items():
        kinds = alternatives(hints.get(name))
        if kinds and not any(fits(value, kind) for kind in kinds):
            expected = " or ".join(described(kind, value) for kind in kinds if kind is not NoneType)
            return f"{name} is {short(value)}, expected {expected}"
    return None


def alternatives(hint: Any) -> tuple[type, ...]:
    """The plain classes of a type hint; none where it says more than a class, which the function checks itself."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return tuple(kinds) if all(type(kind) is type or kind is Tensor for kind in kinds) else ()


def fits(value: Any, kind: type) -> bool:
    if kind is not int:
        return isinstance(value, kind)
    try:
        return -(2**63) <= index(value) < 2**63 and not isinstance(value, Tensor)
    except TypeError:
        return False


def described(kind: type, value: Any) -> str:
    if kind is int:
        return "an integer of 64 bits" if isinstance(value, int) else "an integer"
    return "a tensor" if kind is Tensor else kind.__name__


def short(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"
