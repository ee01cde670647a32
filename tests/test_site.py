"""The pages for a browser: built without a network and without a warning (make test-docs)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dsv4_npu_ops

ROOT = Path(__file__).resolve().parents[1]
NO_NETWORK = """
import runpy, socket, sys
def refuse(*arguments, **named):
    raise RuntimeError("the build of the pages asked for a network")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
sys.argv = ["build.py", sys.argv[1]]
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("DSV4_TEST_SITE") != "1":
        pytest.skip("a part of its own, which installs the generator: make test-docs")
    folder = tmp_path_factory.mktemp("site")
    code = NO_NETWORK.format(script=str(ROOT / "docs" / "site" / "build.py"))
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_there_and_every_link_leads_somewhere(site: Path) -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "csrc").rglob("README.md")]:
        assert (site / page.relative_to(ROOT).with_suffix(".html")).exists(), page
    broken = []
    for page in site.rglob("*.html"):
        text = page.read_text()
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            file, _, anchor = target.partition("#")
            if "://" in file or file.startswith(("data:", "mailto:")):
                continue
            linked = page if not file else page.parent / file.split("?")[0]
            if not linked.exists():
                broken.append(f"{page.relative_to(site)}: {target}")
            elif anchor and linked.suffix == ".html" and f'id="{anchor}"' not in linked.read_text():
                broken.append(f"{page.relative_to(site)}: {target}, no such heading")
    assert not broken, "\n".join(broken)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert not loaded, page


def test_every_public_name_has_an_entry(site: Path) -> None:
    text = (site / "docs" / "api" / "dsv4_npu_ops.html").read_text()
    for name in set(dsv4_npu_ops.__all__) - {"__version__"}:
        assert re.search(rf'id="dsv4_npu_ops\.{name}"', text), name
