"""Builds the pages for a browser, without a network: python docs/site/build.py [FOLDER], by default build/docs.

The repository's pages are taken as they are, at their own places, so that links between them go on working; what they
link to besides (sources, examples) comes along. Pages of the Python names are made from the docstrings.
"""

import re
import shutil
import sys
from importlib import import_module
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")

GUIDES = {
    "Begin": ["concepts", "glossary", "install", "troubleshooting"],
    "With an engine": ["engines", "sglang", "vllm_ascend", "replaces"],
    "Your own engine": ["own_engine", "cpp", "ops", "capacity", "serving", "compile"],
    "Reference": ["spec", "api/index"],
    "Kernels and hardware": ["npu", "status", "simulated_cost", "mutation"],
    "Work on it": ["testing"],
}
"""Pages of docs/ in the order of the contents; others follow at the end."""

API = {
    "dsv4_npu_ops": "Steps, tables, allocation, RoPE",
    "dsv4_npu_ops.graph": "Buffers of captured graphs",
    "dsv4_npu_ops.ops.extend_from_lists": "Allocation from an engine's lists",
    "dsv4_npu_ops.disagg": "Prefill and decode apart",
    "dsv4_npu_ops.disagg.prefill": "The prefill worker",
    "dsv4_npu_ops.disagg.decode": "The decode worker",
    "dsv4_npu_ops.mtp.runner": "A model with MTP",
    "dsv4_npu_ops.weights": "Weights of the MTP layer",
    "dsv4_npu_ops.speculative": "Speculative options",
    "dsv4_npu_ops.doctor": "What is installed and replaced",
}
"""Modules whose public names get a page."""


def pages() -> list[Path]:
    """Every page of the repository."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    for folder in ("csrc", "tests", "examples"):
        found += ROOT.glob(f"{folder}/**/README.md")
    return sorted(found)


def copy_with_links(page: Path, source: Path) -> None:
    """A page, and the files that it links to; a link to a folder goes to the folder's page, or is left out."""

    def link(match: re.Match) -> str:
        target = (page.parent / match[1]).resolve()
        if target.is_dir() and (target / "README.md").exists():
            return f"]({match[1].rstrip('/')}/README.md{match[2] or ''})"
        if target.is_file() and target.suffix != ".md" and target.is_relative_to(ROOT):
            copied = source / target.relative_to(ROOT)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, copied)
        return match[0]

    copied = source / page.relative_to(ROOT)
    copied.parent.mkdir(parents=True, exist_ok=True)
    copied.write_text(LINK.sub(link, page.read_text()))


def contents() -> str:
    """The table of contents, which is not on the page itself."""
    named = [name for names in GUIDES.values() for name in names]
    others = sorted(page.stem for page in ROOT.glob("docs/*.md") if page.stem not in named)
    guides = GUIDES | {"Work on it": [*GUIDES["Work on it"], *others]}
    trees = {caption: [f"docs/{name}" for name in names] for caption, names in guides.items()}
    trees["Work on it"] += [page.stem for page in sorted(ROOT.glob("*.md")) if page.name != "README.md"]
    trees["READMEs"] = [
        str(page.relative_to(ROOT).with_suffix("")) for page in pages() if len(page.relative_to(ROOT).parts) > 2
    ]
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in trees.items()
    )


def write_api(folder: Path) -> None:
    """A page for each module of API, and one that lists them."""
    folder.mkdir(parents=True, exist_ok=True)
    for module, title in API.items():
        # Without a list of public names, what a module imports is not its own.
        imported = "   :imported-members:\n" if hasattr(import_module(module), "__all__") else ""
        directive = f"```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n{imported}```\n"
        (folder / f"{module}.md").write_text(f"# {title}\n\n`{module}`\n\n{directive}")
    names = "\n".join(f"- [{title}]({module}.md): `{module}`" for module, title in API.items())
    tree = "```{toctree}\n:hidden:\n\n" + "\n".join(API) + "\n```\n"
    (folder / "index.md").write_text(f"# Python\n\nFrom the docstrings.\n\n{names}\n\n{tree}")


def main() -> int:
    build = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "docs"
    source = build / "source"
    shutil.rmtree(build, ignore_errors=True)
    for page in pages():
        copy_with_links(page, source)
    readme = source / "README.md"
    readme.write_text(readme.read_text() + contents())
    write_api(source / "docs" / "api")
    settings = ["-q", "-W", "--keep-going", "-c", str(Path(__file__).parent), "-d", str(build / "doctrees")]
    status = sphinx_build(["-b", "html", *settings, str(source), str(build / "html")])
    if not status:
        print(f"{build / 'html' / 'README.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
