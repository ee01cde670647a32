"""Runs a CANN toolkit's own stub generator over the kernels and compares its launch headers with ours.

    python tests/ascend_sim/compare_toolkit_stubs.py <toolkit folder> [dav-2201]    (part of `make typecheck`)

The toolkit's script reads preprocessed device code; the device compiler that makes it is not needed, because what the
script looks at are the macros of kernel signatures and the parameter structs. Nothing of the toolkit is kept.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from generate_stubs import header_text, parse_source

COMPILER = os.environ.get("CXX", "c++")
ROOT = Path(__file__).resolve().parents[2]
# What the device compiler's headers make of the words of a signature, and of the kernel type.
MACROS = {
    "__global__": "__attribute__((cce_kernel))",
    "__aicore__": "[aicore]",
    "__gm__": "__attribute__((cce_global))",
    "GM_ADDR": "__attribute__((cce_global)) uint8_t*",
}
KERNEL_OPERATOR = (
    "#include <cstdint>\n#define KERNEL_TASK_TYPE_DEFAULT(value) __enable_feature_for_compile_default = value;\n"
)
DECLARATION = re.compile(r'extern "C" uint32_t aclrtlaunch_.*?;')
# What the script calls an architecture whose kernels have a vector core of their own: in CANN 8.1, or later.
MODES = {"dav-2201": ("aiv", "c220"), "dav-3510": ("c310",)}


def toolkit_script(toolkit: Path) -> ModuleType | None:
    """The toolkit's stub generator, if the toolkit has one. CANN 9 keeps it as a legacy of 8."""
    scripts = sorted(toolkit.rglob("ascendc_kernel_cmake/**/util/extract_host_stub.py"))
    if not scripts:
        return None
    sys.path.insert(0, str(scripts[0].parent))
    return importlib.import_module("extract_host_stub")


def mode_of(script: ModuleType, architecture: str) -> str:
    """What the script calls this architecture."""
    text = Path(str(script.__file__)).read_text()
    known = [mode for mode in MODES[architecture] if f'build_mode == "{mode}"' in text]
    if not known:
        raise SystemExit(f"{script.__file__} does not know {architecture}, expected one of {MODES[architecture]} in it")
    return known[0]


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def main(toolkit: Path, architecture: str = "dav-2201") -> None:
    script = toolkit_script(toolkit)
    if script is None:
        print(f"skipped: {toolkit} has no ascendc_kernel_cmake/util/extract_host_stub.py")
        return
    sources = sorted((ROOT / "csrc" / "ops").glob("*/*_kernel.cpp"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "kernel_operator.h").write_text(KERNEL_OPERATOR)
        preprocess = [COMPILER, "-E", "-std=c++17", "-I", scratch, "-I", str(ROOT / "csrc")]
        preprocess += [f"-D{name}={text}" for name, text in MACROS.items()]
        mode = mode_of(script, architecture)
        script.IS_V220_MODE = architecture == "dav-2201"
        script.IS_C310_MODE = architecture == "dav-3510"
        groups = [
            script.parse_func_signature_group_by_source(str(source), run([*preprocess, str(source)]), mode)
            for source in sources
        ]
        # The stub repeats the parameter structs at global scope, without any header of ours.
        types = folder / "types.cpp"
        types.write_text("#include <cstdint>\n" + script.generate_type_definition_content_by_func_sign_groups(groups))
        run([COMPILER, "-std=c++11", "-fsyntax-only", "-Wall", "-Werror", str(types)])
        signatures = script.func_signs_in_groups([script.trans_func_sign_group(group) for group in groups])
        script.do_save_commands(script.generate_save_stub_header_commands(signatures, scratch))
        for source, group in zip(sources, groups, strict=True):
            if group.kernel_type != script.CodeMode.KERNEL_TYPE_AIV_ONLY:
                raise SystemExit(f"{source.name}: kernel type is {group.kernel_type}, expected KERNEL_TYPE_AIV_ONLY")
            for kernel in parse_source(source, [ROOT / "csrc"]):
                theirs = (folder / f"aclrtlaunch_{kernel.name}.h").read_text().replace("numBlocks", "blockDim")
                want, got = DECLARATION.findall(header_text(kernel)), DECLARATION.findall(theirs)
                if want != got:
                    raise SystemExit(f"{source.name}: the toolkit declares {got}, expected {want}")
    print(f"{len(sources)} kernels: the toolkit's launch headers equal ours")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
