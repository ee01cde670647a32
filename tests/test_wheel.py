"""The wheel carries everything: built from the tree, installed elsewhere, imported from outside the checkout."""

import os
import re
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
RELEASE = ".".join(torch.__version__.split(".")[:2])

SMOKE = """
import pathlib, sys
import torch, dsv4_npu_ops as d
site = pathlib.Path(sys.argv[1])
assert site in pathlib.Path(d.__file__).resolve().parents, d.__file__
cos = torch.arange(8.).reshape(4, 2)
rows, _ = d.rope_gather(cos, cos, torch.tensor([2, 0]))
assert rows.tolist() == [[4., 5.], [0., 1.]]
print(d.__version__)
"""


def run(*command: str, cwd: Path, **variables: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    result = subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def pip(*arguments: str, cwd: Path, **variables: str) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments, cwd=cwd, **variables)


def build_wheel(source: Path, folder: Path, **variables: str) -> Path:
    """Wheel of a source tree or of a source distribution, without what earlier builds left there but objects."""
    config = folder / "setuptools.cfg"
    config.write_text(f"[build]\nbuild_base = {folder / 'build'}\n[egg_info]\negg_base = {folder}\n")
    variables = {"DIST_EXTRA_CONFIG": str(config), **variables}
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder), str(source), cwd=folder, **variables)
    (wheel,) = folder.glob("dsv4_npu_ops-*.whl")
    return wheel


def install(wheel: Path, site: Path) -> None:
    pip("install", "--no-deps", "--target", str(site), str(wheel), cwd=site.parent)


def check_smoke(wheel: Path, folder: Path) -> None:
    """Installs and imports it, away from any checkout."""
    site = folder / "site"
    install(wheel, site)
    version = run(sys.executable, "-c", SMOKE, str(site), cwd=folder, PYTHONPATH=str(site))
    assert version.strip() == wheel.name.split("-")[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    install(wheel, wheel.parent / "installed")
    return wheel.parent / "installed"


def required_modules(name: str, seen: set[str]) -> set[Path]:
    """Folders and files that a distribution and all that it requires here put beside each other."""
    if name in seen:
        return set()
    seen.add(name)
    found = distribution(name)
    tops = {Path(file).parts[0] for file in found.files or [] if ".dist-info" not in str(file)} - {".."}
    modules = {Path(found.locate_file(top)) for top in tops}
    for line in found.requires or []:
        if "extra ==" not in line:
            required = re.split(r"[^\w.-]", line, maxsplit=1)[0].lower()
            try:
                modules |= required_modules(required, seen)
            except ModuleNotFoundError:  # of another platform
                continue
    return modules


def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python").glob("dsv4_npu_ops/**/*.py*")}
    sources = {name for name in sources if not name.endswith(".pyc")} | {"dsv4_npu_ops/py.typed"}
    assert {"dsv4_npu_ops/_C.pyi", "dsv4_npu_ops/torch_ops.pyi"} <= sources
    cpp = {f"dsv4_npu_ops/include/dsv4_npu_ops/{name}.h" for name in ("ops", "ledger")}
    cpp.add("dsv4_npu_ops/share/cmake/dsv4_npu_ops/dsv4_npu_opsConfig.cmake")
    assert names == sources | cpp | {"dsv4_npu_ops/_built_for.py", "dsv4_npu_ops/_C.abi3.so"}
    check_smoke(wheel, tmp_path)


def test_the_metadata_name_the_torch_that_it_was_built_for(wheel: Path) -> None:
    assert re.fullmatch(rf"dsv4_npu_ops-[\d.]+\+torch{RELEASE}-cp310-abi3-linux_\w+\.whl", wheel.name), wheel.name
    (metadata,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    fields = HeaderParser().parsestr(zipfile.ZipFile(wheel).read(metadata).decode())
    assert [line for line in fields.get_all("Requires-Dist") if "extra ==" not in line] == [f"torch=={RELEASE}.*"]
    assert fields["Requires-Python"] == ">=3.10"


def test_the_core_needs_nothing_beyond_torch(site: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    for module in required_modules("torch", set()):
        (alone / module.name).symlink_to(module)
    python = (sys.executable, "-S", "-W", "ignore:Failed to initialize NumPy", "-c")
    path = f"{site}{os.pathsep}{alone}"
    assert "+torch" in run(*python, SMOKE, str(site), cwd=tmp_path, PYTHONPATH=path)
    for module in ("graph", "speculative", "weights"):
        run(*python, f"import dsv4_npu_ops.{module}", cwd=tmp_path, PYTHONPATH=path)
    with pytest.raises(AssertionError, match="No module named 'numpy'"):
        run(*python, "import torch, numpy", cwd=tmp_path, PYTHONPATH=path)


def test_libraries_have_no_run_path(site: Path, tmp_path: Path) -> None:
    libraries = list(site.rglob("*.so"))
    assert libraries
    for library in libraries:
        dynamic = run("readelf", "--dynamic", "--wide", str(library), cwd=tmp_path)
        assert "(NEEDED)" in dynamic
        assert "(RPATH)" not in dynamic and "(RUNPATH)" not in dynamic, dynamic


def builder_paths(content: bytes) -> list[str]:
    """Absolute paths below the folders that this build has used."""
    torch_dir = Path(torch.__file__).resolve().parents[1]
    folders = {ROOT, torch_dir, Path(sys.prefix), Path(sys.base_prefix), Path.home()} - {Path("/usr"), Path("/")}
    names = "|".join(re.escape(str(folder)) for folder in folders)
    return [path.decode() for path in re.findall(rf"(?<![\w.-])(?:{names})/[ -~]*".encode(), content)]


def test_no_file_names_a_folder_of_the_builder(wheel: Path) -> None:
    """Messages of torch's and our checks name the source by __FILE__."""
    assert builder_paths(f"\0{ROOT}/csrc/torch/check.h\0".encode()) == [f"{ROOT}/csrc/torch/check.h"]
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    found = {name: builder_paths(content) for name, content in contents.items()}
    assert {name: paths for name, paths in found.items() if paths} == {}
    assert contents["dsv4_npu_ops/_C.abi3.so"].count(b"\0csrc/torch/check.h\0") == 1


def test_the_extension_is_for_every_python(site: Path, tmp_path: Path) -> None:
    """It uses two functions of Python, which its stable ABI has had from the start."""
    symbols = run("nm", "--dynamic", "--undefined-only", str(site / "dsv4_npu_ops/_C.abi3.so"), cwd=tmp_path)
    used = set(re.findall(r"\bU (_?Py\w+)", symbols))
    assert used == {"PyModule_Create2", "PyModule_AddStringConstant", "Py_DecRef"}
