"""The Python standard library's sources as byte tokens, with a fixed held-out part."""

import hashlib
import sysconfig
from pathlib import Path

import torch

BOS, EOS, PAD = 256, 257, 258
VOCAB_SIZE = 260

# What is left reads like ordinary modules; tests, tables (code pages, topics) and applications are unlike them.
_EXCLUDED = {
    *("site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "pydoc_data", "encodings"),
    *("idlelib", "lib2to3", "tkinter", "turtledemo", "distutils", "ensurepip", "msilib"),
}
_HELD_OUT_ONE_IN = 24


def source_files() -> list[Path]:
    """The standard library's modules, sorted by their path below the library's folder."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [path for path in root.rglob("*.py") if not _EXCLUDED & set(path.relative_to(root).parts)]
    return sorted(files, key=lambda path: path.relative_to(root).as_posix())


def is_held_out(path: Path) -> bool:
    """Whether a module is kept from training: decided by its name alone, so it does not depend on the installation."""
    return hashlib.sha256(path.name.encode()).digest()[0] % _HELD_OUT_ONE_IN == 0


def encode(text: bytes) -> list[int]:
    """One token a byte."""
    return list(text)


def decode(tokens: list[int]) -> str:
    """Text of the byte tokens; special tokens are dropped, broken UTF-8 is replaced."""
    return bytes(token for token in tokens if token < 256).decode("utf-8", errors="replace")


def token_stream(held_out: bool) -> torch.Tensor:
    """All modules of one part, each as BOS, its bytes, EOS: int64 [tokens]."""
    tokens: list[int] = []
    for path in source_files():
        if is_held_out(path) == held_out:
            tokens += [BOS, *path.read_bytes(), EOS]
    if not tokens:
        raise RuntimeError(f"no Python sources below {sysconfig.get_paths()['stdlib']}, expected the standard library")
    return torch.tensor(tokens, dtype=torch.int64)
