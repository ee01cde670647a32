"""Modules that stand for what an engine imports and a test does not need, so that its own files load unmodified."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any


class Anything:
    """Called, indexed, subclassed, used as a decorator: gives itself, or the decorated function."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        return Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (_Base,)

    def __getitem__(self, key: Any) -> Any:
        return Anything()

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __or__(self, other: Any) -> Any:
        return Anything()

    __ror__ = __or__

    def __iter__(self) -> Any:
        return iter(())

    def __contains__(self, item: Any) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> bool:
        return False

    def __str__(self) -> str:
        return "0.0.0"

    def __int__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0

    def __lt__(self, other: Any) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


class _Base:
    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


class StubModule(types.ModuleType):
    """Has every attribute, and every submodule."""

    __path__ = ()
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        submodule = sys.modules.get(f"{self.__name__}.{name}")
        value = Anything() if submodule is None else submodule
        setattr(self, name, value)
        return value


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives a StubModule for each name that is asked for and wanted."""

    def __init__(self, wants: Callable[[str], bool]) -> None:
        self._wants = wants

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if self._wants(name) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def bare_package(name: str, path: str, *, has_everything: bool = False) -> Any:
    """A package whose modules lie in a folder, in place of what its own ``__init__`` would import.

    Args:
        has_everything: whether it gives a stub for every name that is asked of it.
    """
    module = types.ModuleType(name)
    module.__path__ = [path]
    if has_everything:
        module.__getattr__ = _placeholder  # type: ignore[method-assign]
    sys.modules[name] = module
    return module


def _placeholder(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything()


def importer_is_below(folder: str) -> bool:
    """Whether the import that runs now stands in a file below the folder."""
    frame = sys._getframe(1)
    for in_importlib in (False, True):
        while frame is not None and ("importlib" in frame.f_code.co_filename) is in_importlib:
            frame = frame.f_back
    return frame is not None and folder in frame.f_code.co_filename


def is_one_of(name: str, parents: tuple[str, ...]) -> bool:
    """Whether a module is one of the given, or below one."""
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)
