"""The ops from a C++ program without Python: headers, CMake package and example, as the package brings them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths

import dsv4_npu_ops

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "cpp"
HEADER = Path(dsv4_npu_ops.cmake_prefix_path) / "include" / "dsv4_npu_ops" / "ops.h"

# Request 2 has tokens 0 .. 9 in the first page that is handed out, request 0 tokens 0 .. 129 in the next two.
EXPECTED = """\
25 ops
window slots: 134 135 136 137 382 383 384 385
c4 positions: 4 124 0 0
c4 slots: 129 287 0 0
lengths: 10 130
pool 0 lacks pages: 8 needed, 0 free
full has 0 pages
full has 16 pages
step: seq_lens[0] is -1, expected at least 0
"""


def run(*command, **options):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, env={**os.environ, "PATH": path}, text=True, capture_output=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpp")
    prefixes = f"{torch.utils.cmake_prefix_path};{dsv4_npu_ops.cmake_prefix_path}"
    configure = ("cmake", "-G", "Ninja", "-S", EXAMPLE, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefixes}")
    run(*map(str, configure), "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror -O0")
    run("cmake", "--build", str(folder))
    return folder / "verify_steps"


def test_the_example_prints_what_the_docs_say(program):
    assert run(str(program)) == EXPECTED
    assert "libpython" not in run("ldd", str(program))


def test_another_library_is_refused(program, tmp_path):
    other = Path(torch.__file__).parent / "lib" / "libc10.so"
    for library, message in ((tmp_path / "none.so", "cannot be loaded"), (other, "is not its library")):
        done = subprocess.run([str(program), str(library)], text=True, capture_output=True, check=False)
        assert done.returncode != 0 and message in done.stderr


def test_every_op_is_in_the_header():
    names = [schema.name for schema in torch._C._jit_get_all_schemas()]
    ops = {name.partition("::")[2] for name in names if name.startswith("dsv4_npu_ops::")}
    assert set(re.findall(r'"dsv4_npu_ops::(\w+)", "(?:out)?"', " ".join(HEADER.read_text().split()))) == ops


def test_headers_compile_alone(tmp_path):
    include = [f"-I{HEADER.parents[1]}", *(f"-isystem{path}" for path in include_paths())]
    for header in HEADER.parent.glob("*.h"):
        program = tmp_path / f"{header.stem}.cpp"
        program.write_text(f'#include "dsv4_npu_ops/{header.name}"\n')
        run("c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *include, str(program))
