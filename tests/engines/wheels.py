"""Engines' wheels, fetched without their dependencies and unpacked below build/engines; nothing of them is committed.

python tests/engines/wheels.py sglang 0.5.23 ..   fetches and says where they are.
"""

import argparse
import fcntl
import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "engines"
PLATFORM = ("--python-version", "3.11", "--platform", "manylinux_2_34_x86_64", "--only-binary=:all:")


class Unavailable(Exception):
    """A wheel cannot be fetched here."""


@dataclass(frozen=True)
class Wheel:
    """One engine's wheel, the same for every machine: only its Python files are read."""

    engine: str
    version: str
    sha256: str

    @property
    def folder(self) -> Path:
        """Where it is unpacked."""
        return FOLDER / f"{self.engine}-{self.version}"

    def unpacked(self) -> Path:
        """The folder with the engine's packages; fetched when it is not there.

        Raises:
            Unavailable: it could not be fetched, or is another file than expected.
        """
        complete = self.folder / ".complete"
        if not complete.exists():
            FOLDER.mkdir(parents=True, exist_ok=True)
            with open(FOLDER / f"{self.folder.name}.lock", "w") as lock:  # workers of one run ask at once
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not complete.exists():
                    self._fetch()
        return self.folder

    def _fetch(self) -> None:
        downloads = FOLDER / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *PLATFORM, "--dest", str(downloads)]
        done = subprocess.run([*command, f"{self.engine}=={self.version}"], capture_output=True, text=True, check=False)
        files = list(downloads.glob(f"{self.engine.replace('-', '_')}-{self.version}-*.whl"))
        if len(files) != 1:
            raise Unavailable(f"{self.engine} {self.version} cannot be fetched: {done.stderr.strip()[-300:]}")
        given = hashlib.sha256(files[0].read_bytes()).hexdigest()
        if given != self.sha256:
            files[0].unlink()
            raise Unavailable(f"{self.engine} {self.version} has sha256 {given}, expected {self.sha256}")
        with zipfile.ZipFile(files[0]) as archive:
            archive.extractall(self.folder)
        (self.folder / ".complete").touch()
        files[0].unlink()


WHEELS = {
    (wheel.engine, wheel.version): wheel
    for wheel in (
        Wheel("sglang", "0.5.15", "21492759b4b99e117bd81610f633422f3fdae2896c2cde6931eab886deccc44f"),
        Wheel("sglang", "0.5.16", "d5f345a18953dd35df568ac56bdcb7f5ee910ab39efea4469b714556d1070713"),
        Wheel("sglang", "0.5.17", "575e38f5683624ded3b4bb267f637a098e5ed37d13a1d1ff5ea09bd781a04d16"),
        Wheel("sglang", "0.5.18", "e97b585dd2d5db2802599feba47c84cce972f5e1231a6816fef996200207b5cf"),
        Wheel("sglang", "0.5.19", "425e87377e725d03db8262382008f3fd9561a6cf5d82f485f8b9929f02ffe12b"),
        Wheel("sglang", "0.5.20", "1573527042f4f6b4ead838302818595fc77fdc611dbcc2e40cd150fbc8f8513c"),
        Wheel("sglang", "0.5.21", "96c029f75dec99baa33a5db3d41b1bebefdd6bcfba3a2f7c807fe1cf49a87c20"),
        Wheel("sglang", "0.5.22", "cc9a0f15bd8f877a0584fdb7a1702240177a1f1cc8d17c978715161717b9037b"),
        Wheel("sglang", "0.5.23", "00b3cd5b265ac76c64185fbb6b95424f324ddd9f428d0306b77bc9db9d859937"),
        Wheel("tokenspeed", "0.1.0", "2649dfcb853bbba74a065fa10d3280513e5755da057b6a9cbf6b82ff47d70b2a"),
        Wheel("tokenspeed", "0.1.1", "c20d4e87830c821f0b36f665baff999c4d08603b38becc6be33dc2636b97fb19"),
        Wheel("vllm-ascend", "0.23.0", "4f0d25d3b6d8ae85753b53d4bd8d910418865baf413fa779b87012ad1a4a3f87"),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine")
    parser.add_argument("versions", nargs="+")
    arguments = parser.parse_args()
    for version in arguments.versions:
        print(WHEELS[arguments.engine, version].unpacked())


if __name__ == "__main__":
    main()
