"""The source distribution has what a build needs, and no more; a wheel built from it works."""

import os
import subprocess
import sys
import tarfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
import test_wheel

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("csrc/", "cmake/", "python/", "docs/", "CMakeLists.txt", "setup.py", "pyproject.toml", "README.md", "LICENSE")
UNREAD = {"MANIFEST.in", "PKG-INFO", "setup.cfg"}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built where no torch can be imported: sources are of no torch yet.

    And without the list of files that an earlier build has left in the checkout, which would be packed too.
    """
    folder = tmp_path_factory.mktemp("sdist")
    config = folder / "setuptools.cfg"
    config.write_text(f"[egg_info]\negg_base = {folder}\n")
    code = "import sys; sys.modules['torch'] = None\nfrom setuptools.build_meta import build_sdist as b; b(sys.argv[1])"
    environment = {**os.environ, "DIST_EXTRA_CONFIG": str(config)}
    subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, env=environment, check=True, capture_output=True
    )
    (archive,) = folder.glob("dsv4_npu_ops-*.tar.gz")
    return archive


def test_it_has_the_tracked_sources(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        top, *_ = archive.getnames()
        files = {
            name.removeprefix(f"{top}/"): archive.extractfile(name).read()
            for name in archive.getnames()
            if archive.getmember(name).isfile()
        }
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *NEEDED],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    tracked = {name for name in listed.stdout.split() if (ROOT / name).exists()}
    extra = {name for name in files if ".egg-info/" not in name} - UNREAD
    assert extra == tracked
    assert all(files[name] == (ROOT / name).read_bytes() for name in tracked)
    fields = HeaderParser().parsestr(files["PKG-INFO"].decode())
    assert sdist.name == f"dsv4_npu_ops-{fields['Version']}.tar.gz" and "+" not in fields["Version"]
    assert "torch<2.16,>=2.8" in fields.get_all("Requires-Dist")


def build_without(module: str, source: Path, folder: Path) -> str:
    """What the last line of a wheel build says where a module cannot be found; nothing is built."""
    code = (
        "import importlib.util as u, sys; find = u.find_spec\n"
        f"u.find_spec = lambda name, *rest: None if name == {module!r} else find(name, *rest)\n"
        "from setuptools.build_meta import prepare_metadata_for_build_wheel as p; p(sys.argv[1])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "DSV4_TORCH_DIR"}
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    return done.stderr.strip()


def metadata_with_torch(folder: Path, version_line: str) -> subprocess.CompletedProcess:
    """Makes a wheel's metadata in a folder, which is also that of a torch whose version.py has one line."""
    (folder / "version.py").write_text(f"{version_line}\n")
    code = "import sys; from setuptools.build_meta import prepare_metadata_for_build_wheel as p; p(sys.argv[1])"
    environment = {**os.environ, "DSV4_TORCH_DIR": str(folder)}
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_a_build_without_torch_says_so(tmp_path: Path) -> None:
    message = build_without("torch", ROOT, tmp_path)
    assert message.startswith(
        "torch is not installed in the Python that builds dsv4_npu_ops, expected torch 2.8 to 2.15:"
    )
    assert "--no-build-isolation" in message and "\n" not in message


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("__version__ = '2.7.1+cpu'", "torch 2.7.1+cpu is installed at {folder}, expected torch 2.8 to 2.15"),
        ("version = 2", "{folder}/version.py names no version, expected that of a torch package"),
    ],
)
def test_a_build_with_an_old_torch_says_so(tmp_path: Path, version: str, message: str) -> None:
    done = metadata_with_torch(tmp_path, version)
    assert (done.returncode, done.stderr.strip()) == (1, message.format(folder=tmp_path))


def test_a_build_with_a_newer_torch_warns_and_names_it(tmp_path: Path) -> None:
    done = metadata_with_torch(tmp_path, "__version__ = '3.1.0'")
    assert done.returncode == 0, done.stderr
    assert "dsv4_npu_ops was never built with torch 3.1.0, only with torch 2.8 to 2.15\n" in done.stderr
    (metadata,) = tmp_path.glob("*.dist-info/METADATA")
    fields = HeaderParser().parsestr(metadata.read_text())
    assert fields["Version"].endswith("+torch3.1")
    assert "torch==3.1.*" in fields.get_all("Requires-Dist")


def test_no_build_fetches_a_torch() -> None:
    build_system = (ROOT / "pyproject.toml").read_text().partition("[build-system]")[2].partition("\n[")[0]
    assert "setuptools>=" in build_system and "torch" not in build_system


@pytest.mark.thorough
def test_a_wheel_built_from_it_works(sdist: Path, tmp_path: Path) -> None:
    """Compiled unoptimised, which halves the time; a folder of its own that stays makes the next run short."""
    source = ROOT / "build" / "sdist" / "source"
    source.mkdir(parents=True, exist_ok=True)
    with tarfile.open(sdist) as archive:
        unpack_changed(archive, source)
    wheel = test_wheel.build_wheel(
        source, tmp_path, DSV4_BUILD_DIR=str(source.parent / "cmake"), CMAKE_BUILD_TYPE="None"
    )
    test_wheel.check_smoke(wheel, tmp_path)


def unpack_changed(archive: tarfile.TarFile, folder: Path) -> None:
    """Leaves files alone that are the same already, so that what was compiled from them is not compiled again."""
    wanted = set()
    for member in archive.getmembers():
        path = folder / Path(member.name).relative_to(Path(member.name).parts[0])
        if member.isfile():
            wanted.add(path)
            content = archive.extractfile(member).read()
            if not path.exists() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    for path in folder.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()
