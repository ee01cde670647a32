"""Every code block of README.md and docs/ is tried.

Python blocks of a page run one after another in one process, and print what the page says behind "prints". A block that
needs what a test has not is marked by a comment in front of it:

    <!-- given: model -->      runs behind the lines that GIVEN has for it
    <!-- needs: an NPU -->     is only checked for syntax

Commands are not run: their syntax is checked, and that the targets of make, scripts and modules in them exist. C++ and
CMake are not built: what they call is what examples/cpp calls, which a test builds and runs (tests/test_from_cpp.py).
"""

import ast
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
PRINTS = {"prints", "输出"}
END_OF_BLOCK = "\x1e"

GIVEN = {
    "model": f"""
import sys
import torch
sys.path.insert(0, {str(ROOT / "examples")!r})
from demo import CHECKPOINT, held_out_prompts
from dsv4_npu_ops import KVLayout
from dsv4_npu_ops.layout import POOLS
from dsv4_npu_ops.mtp.checkpoint import load_checkpoint
from dsv4_npu_ops.mtp.runner import Runner
target, nextn = load_checkpoint(CHECKPOINT)
layout = KVLayout(16, 128, 4, 1024, dict.fromkeys(POOLS, 100) | {{"full": 20}})
prompts = [prompt[-60:] for prompt in held_out_prompts()[:2]]
torch.set_num_threads(1)  # matrices this small only lose by more threads
""",
    "graphs": """
# Stands for graphs on a CPU, where calls run at once and a replay does nothing.
from contextlib import nullcontext
from types import SimpleNamespace
torch.npu = SimpleNamespace(
    is_initialized=lambda: False,
    NPUGraph=lambda: SimpleNamespace(replay=lambda: None),
    graph=lambda graph: nullcontext(),
)
""",
    "step": """
import torch
import dsv4_npu_ops as d
from dsv4_npu_ops.layout import POOLS
layout = d.KVLayout(16, 32, 4, 256, dict.fromkeys(POOLS, 40))
tables, other_tables = d.RequestTables(layout), d.RequestTables(layout)
d.KVAllocator(layout, tables).alloc_extend([0, 1], [0, 0], [130, 9])
requests, lengths = torch.tensor([0, 1]), torch.tensor([126, 5])
cos, sin = torch.ones(256, 8), torch.zeros(256, 8)
""",
}


@dataclass
class Block:
    """A code block: where it is, its language ("" for output and drawings), and what the page says of it."""

    page: Path
    line: int
    language: str
    code: str
    mark: str  # of the comment in front of it
    lead: str  # the last line of text in front of it

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Fenced blocks, and those that four more columns make."""
    blocks, lead, mark = [], "", ""
    lines = page.read_text().splitlines()
    at, list_indent = 0, 0
    while at < len(lines):
        line = lines[at]
        indent = len(line) - len(line.lstrip())
        fence = re.fullmatch(r" *```(\S*)", line)
        begin = at
        if fence:
            at += 1
            while lines[at].strip() != "```":
                at += 1
            code = textwrap.dedent("\n".join(lines[begin + 1 : at])) + "\n"
            blocks.append(Block(page, begin + 1, fence[1], code, mark, lead))
            lead = mark = ""
        elif line.strip() and indent >= list_indent + 4 and not lines[at - 1].strip():
            while at + 1 < len(lines) and (not lines[at + 1].strip() or lines[at + 1].startswith(" " * indent)):
                at += 1
            code = textwrap.dedent("\n".join(lines[begin : at + 1])).rstrip() + "\n"
            blocks.append(Block(page, begin + 1, language_of(code), code, mark, lead))
            lead = mark = ""
        elif comment := re.fullmatch(r"\s*<!-- (.*) -->", line):
            mark = comment[1]
        elif line.strip():
            item = re.match(r"( *(?:[-*]|\d+\.) +)", line)
            list_indent = len(item[1]) if item else min(list_indent, indent)
            lead = line.strip()
        at += 1
    return blocks


def language_of(code: str) -> str:
    """Of a block without a fence: commands, unless it begins as Python does."""
    return "python" if re.match(r"(import|from|with) ", code) else "sh"


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
OF_PYTHON = [block for block in BLOCKS if block.language == "python"]
PAGES_WITH_PYTHON = sorted({block.page for block in OF_PYTHON})


def ids(value: object) -> str:
    return value.place if isinstance(value, Block) else str(value.relative_to(ROOT))


def expected_output(block: Block) -> str | None:
    """What the page says that a Python block prints."""
    behind = BLOCKS[BLOCKS.index(block) + 1 :]
    follows = behind and behind[0].page == block.page and behind[0].language == "" and behind[0].lead in PRINTS
    return behind[0].code if follows else None


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON, ids=ids)
def test_python_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    blocks = [block for block in OF_PYTHON if block.page == page and not block.mark.startswith("needs: ")]
    source = "import os; os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')\n"
    for block in blocks:
        source += GIVEN[block.mark.removeprefix("given: ")] if block.mark else ""
        source += f"{block.code}\nprint({END_OF_BLOCK!r})\n"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{END_OF_BLOCK}\n")
    for block, output in zip(blocks, printed, strict=False):
        expected = expected_output(block)
        assert expected is None or output == expected, block.place


@pytest.mark.parametrize("block", OF_PYTHON, ids=ids)
def test_python_is_python(block: Block) -> None:
    ast.parse(block.code)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "sh"], ids=ids)
def test_commands_are_written_right(block: Block) -> None:
    done = subprocess.run(
        ["bash", "-n"],
        input=re.sub(r"<[\w .-]+>", "placeholder", block.code),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    makefiles = "\n".join(path.read_text() for path in [ROOT / "Makefile", *ROOT.glob("*/**/*.mk")])
    code = re.sub(r"\s#.*", "", block.code)
    for targets in re.findall(r"^\s*make((?: +[\w-]+)+)", code, re.MULTILINE):
        for target in targets.split():
            assert re.search(rf"^{target}:", makefiles, re.MULTILINE), f"no target {target}"
    for script in re.findall(r"\b(?:python3?|pytest)(?: -x)? ((?:\w+/)+\w+\.py)", code):
        assert (ROOT / script).exists(), f"no {script}"
    for module in re.findall(r"-m (dsv4_npu_ops[\w.]*|ascend_backend[\w.]*|soak[\w.]*|fuzz[\w.]*)", code):
        folder = ROOT / ("python" if module.startswith("dsv4") else "tests") / module.replace(".", "/")
        assert folder.with_suffix(".py").exists() or (folder / "__main__.py").exists(), f"no module {module}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in ("cpp", "cmake")], ids=ids)
def test_cpp_calls_what_the_example_calls(block: Block) -> None:
    folder = ROOT / "examples" / "cpp"
    example = "\n".join(path.read_text() for path in (folder / "verify_steps.cpp", folder / "CMakeLists.txt"))
    code = re.sub(r"//.*", "", block.code)
    for call in re.findall(r"(\w+)\(", code):
        assert re.search(rf"\b{call}\(", example), f"{call} is not in examples/cpp"
    for package in re.findall(r"find_package\((\w+)", code):
        assert f"find_package({package} " in example
    for header in re.findall(r'#include "([^"]+)"', code):
        assert [*(ROOT / "csrc").rglob(header), *(ROOT / "python").rglob(header)], f"no {header}"


def test_blocks_are_marked_and_named_as_the_tests_know() -> None:
    for block in BLOCKS:
        known = ("", "sh", "python", "cpp", "cmake")
        assert block.language in known, f"{block.place}: expected one of {known[1:]} or nothing behind ```"
        known = not block.mark or block.mark.startswith("needs: ") or block.mark.removeprefix("given: ") in GIVEN
        assert known, f"{block.place}: <!-- {block.mark} -->, expected 'needs: ..' or one of {sorted(GIVEN)}"
        outputs = block.lead in PRINTS
        assert not outputs or block.language == "", f"{block.place}: behind 'prints', expected a block of output"


def test_the_readme_has_an_example_and_its_output() -> None:
    (example, *_) = [block for block in OF_PYTHON if block.page == ROOT / "README.md"]
    assert expected_output(example) is not None
    assert len([line for line in example.code.splitlines() if line.strip()]) <= 20
