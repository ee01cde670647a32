"""Functions of an engine without a hook registry, replaced where they stand and wherever they were imported to."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Patch:
    """A function that is replaced.

    Attributes:
        target: dotted path of the function or method.
        original: what stood there.
        places: every namespace that names it, and under which name; the first is the target's own.
    """

    target: str
    original: Any
    places: tuple[tuple[Any, str], ...]

    def undo(self) -> None:
        """Puts the original back, also where it was imported to since."""
        replaced = getattr(*self.places[0])
        for owner, name in dict.fromkeys((*self.places, *_bindings(replaced))):
            if getattr(owner, name, None) is replaced:
                setattr(owner, name, self.original)


_patches: dict[str, Patch] = {}


def replace(target: str, place: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces a function by what ``place`` makes of it; nothing if that was done before.

    A function of a module that other modules have imported by name is replaced there too.

    Raises:
        ImportError, AttributeError: there is no such function.
    """
    if target in _patches:
        return
    parent, _, name = target.rpartition(".")
    owner, original = pkgutil.resolve_name(parent), pkgutil.resolve_name(target)
    replaced = functools.wraps(original)(place(original))
    places = ((owner, name), *(_bindings(original) if isinstance(owner, ModuleType) else ()))
    for namespace, bound_name in places:
        setattr(namespace, bound_name, replaced)
    _patches[target] = Patch(target, original, places)


def undo_all() -> None:
    """Puts everything back, and forgets what waits for an import."""
    for patch in _patches.values():
        patch.undo()
    _patches.clear()
    _awaited.clear()


def _bindings(function: Any) -> list[tuple[ModuleType, str]]:
    """Modules that name the function."""
    return [
        (module, name)
        for module in list(sys.modules.values())
        if isinstance(module, ModuleType)
        for name, value in list(vars(module).items())
        if value is function
    ]


_awaited: dict[str, list[Callable[[], None]]] = {}


def after_import(module: str, call: Callable[[], None]) -> None:
    """Calls at once if the module is loaded, else as soon as it is: before whoever imports it goes on.

    An engine that is imported too early by a plug-in is imported in another order than its own.
    """
    loaded = sys.modules.get(module)
    if loaded is not None and not getattr(loaded.__spec__, "_initializing", False):
        call()
        return
    _awaited.setdefault(module, []).append(call)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Loader(importlib.abc.Loader):
    """A module's own loader, and then what waits for the module."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        for call in _awaited.pop(module.__name__, ()):
            call()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what is awaited as it is found without it."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _awaited or name in self._asked:
            return None
        self._asked.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asked.discard(name)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        spec.loader = _Loader(spec.loader)
        return spec


_finder = _Finder()
