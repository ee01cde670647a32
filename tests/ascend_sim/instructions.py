"""Instructions of a kernel library's basic blocks, for the time model.

They are what the host's compiler made of the kernels' own lines; the simulator's headers and the calls between blocks
do not count. The device's compiler would make other code.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

CALLBACK = "__sanitizer_cov_trace_pc"
# Functions of the headers that are not inlined: their lines may be named after any kernel that has them.
SIMULATORS = ("_ZN7AscendC", "_ZNK7AscendC", "_ZN10ascend_sim", "_ZNK10ascend_sim")
LINE = re.compile(r"^(\S.*):\d+(?: \(discriminator \d+\))?$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")


def _disassembly(file: Path, *options: str) -> list[str]:
    command = ["objdump", "--disassemble", "--line-numbers", "--no-show-raw-insn", *options, str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def _counts(file: Path, source_root: Path) -> list[tuple[int, int]]:
    """(address behind the callback, instructions up to the next one) of every basic block below ``source_root``."""
    own, simulators, blocks, address, count = False, False, [], 0, 0
    behind_callback = False
    for line in _disassembly(file, "--section=.text"):
        if match := LINE.match(line):
            own = Path(match[1]).resolve().is_relative_to(source_root)
        elif match := FUNCTION.match(line):
            simulators = match[1].startswith(SIMULATORS)
            if address:
                blocks.append((address, count))
            address, count, behind_callback = 0, 0, False
        elif match := INSTRUCTION.match(line):
            if behind_callback:
                address, count, behind_callback = int(match[1], 16), 0, False
            if CALLBACK in match[2]:
                if address:
                    blocks.append((address, count))
                behind_callback = True
            elif own and not simulators and not match[2].startswith("nop"):
                count += 1
    if address:
        blocks.append((address, count))
    return blocks


class _Where(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def load_table(library: Path, symbol: str, source_root: Path) -> None:
    """Tell the simulator about a kernel library that is loaded; ``symbol`` is one of its functions."""
    loaded = ctypes.CDLL(str(library))
    where = _Where()
    ctypes.CDLL(None).dladdr(ctypes.cast(loaded[symbol], ctypes.c_void_p), ctypes.byref(where))
    blocks = [block for block in _counts(library, source_root.resolve()) if block[1]]
    offsets = (ctypes.c_uint64 * len(blocks))(*(address for address, _ in blocks))
    numbers = (ctypes.c_uint32 * len(blocks))(*(count for _, count in blocks))
    loaded.ascend_sim_set_instruction_table(ctypes.c_void_p(where.base), offsets, numbers, ctypes.c_uint64(len(blocks)))


def code_instructions(object_file: Path, source_root: Path) -> int:
    """Instructions of one kernel's object file."""
    source_root = source_root.resolve()
    own, count = False, 0
    for line in _disassembly(object_file, "--reloc"):
        if match := LINE.match(line):
            own = Path(match[1]).resolve().is_relative_to(source_root)
        elif (match := INSTRUCTION.match(line)) and own and not match[2].startswith("nop"):
            # Below a call stands what it calls.
            count += -1 if CALLBACK in match[2] else 1
    return count
