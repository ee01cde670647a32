"""Generate launch headers and stubs from the signatures of Ascend C kernels.

For every ``extern "C" __global__ __aicore__ void name(...)`` of the given sources this writes
``aclrtlaunch_<name>.h``, with the signature that the toolkit's CMake project generates, and one stub source whose
functions run the kernel in the device simulator. The toolkit's signature parser splits on commas and white space;
what it would get wrong is refused here with a reason, so that a kernel that builds here also builds there.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCALARS = {
    "int8_t",
    "uint8_t",
    "int16_t",
    "uint16_t",
    "int32_t",
    "uint32_t",
    "int64_t",
    "uint64_t",
    "float",
    "bool",
}
KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+__aicore__\s+(\w+)\s+(\w+)\s*\(([^)]*)\)\s*\{')
ANY_KERNEL = re.compile(r"__global__\s+(?:__aicore__\s+)?[\w\s]*?(\w+)\s*\(")
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
KEPT_WORDS = ("__global__", "__aicore__", "__gm__", "GM_ADDR")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
STRUCT = re.compile(r"^[ \t]*struct[ \t]+(\w+)[ \t]*\{", re.MULTILINE)


class SignatureError(Exception):
    """A kernel signature that the toolkit's stub generator would not understand."""


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: ``kind`` is pointer, scalar or struct; ``type_name`` as written in the kernel."""

    kind: str
    type_name: str
    name: str


@dataclass
class Kernel:
    """A kernel entry and the texts of the structs that its signature needs, inner ones first."""

    name: str
    parameters: list[Parameter]
    structs: dict[str, str] = field(default_factory=dict)


def strip_comments(text: str) -> str:
    """Blank out comments, keeping line numbers."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return pattern.sub(lambda m: m[0] if m[0].startswith('"') else re.sub(r"[^\n]", " ", m[0]), text)


def gather_text(source: Path, include_dirs: list[Path]) -> str:
    """Return the source preceded by the text of every quoted include that can be found."""
    seen: set[Path] = set()

    def visit(path: Path) -> str:
        path = path.resolve()
        if path in seen:
            return ""
        seen.add(path)
        text = strip_comments(path.read_text(encoding="utf-8-sig"))
        parts = []
        for name in INCLUDE.findall(text):
            if name == "kernel_operator.h":
                continue
            for folder in [path.parent, *include_dirs]:
                if (folder / name).is_file():
                    parts.append(visit(folder / name))
                    break
        return "".join(parts) + text

    return visit(source)


def kernel_macros(text: str) -> set[str]:
    """Names of macros whose expansion declares a kernel."""
    bodies = dict(DEFINE.findall(text))
    found: set[str] = set()
    words = {"__global__"}
    while words:
        words = {name for name, body in bodies.items() if words & set(re.findall(r"\w+", body))} - found
        found |= words
    return found


def preprocessed(source: Path, include_dirs: list[Path], compiler: str) -> str:
    """What the preprocessor makes of the lines of the source itself, the words that mark a kernel left as they are."""
    folders = [HERE / "include", source.parent, *include_dirs]
    command = [compiler, "-E", "-x", "c++", "-std=c++17", *(f"-D{word}={word}" for word in KEPT_WORDS)]
    command += [*(f"-I{folder}" for folder in folders), str(source.resolve())]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SignatureError(f"{source.name} declares kernels by macro and cannot be preprocessed: {result.stderr}")
    lines, own = [], False
    for line in result.stdout.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            own = Path(marker[1]) == source.resolve()
        elif own:
            lines.append(line)
    return "\n".join(lines)


def own_text(source: Path, text: str, include_dirs: list[Path], compiler: str) -> str:
    """The source without comments; preprocessed when a macro declares its kernels, as the toolkit does every time."""
    own = strip_comments(source.read_text(encoding="utf-8-sig"))
    without_defines = DEFINE.sub("", own)
    if kernel_macros(text) & set(re.findall(r"\w+", without_defines)):
        return preprocessed(source, include_dirs, compiler)
    return without_defines


def struct_texts(text: str) -> dict[str, str]:
    """Map the names of ``struct Name {`` at global scope to their whole text."""
    found = {}
    for match in STRUCT.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        before = text[: match.start()]
        if before.count("{") == before.count("}"):
            found[match.group(1)] = text[match.start() : end] + ";"
    return found


def refusal(type_name: str, text: str) -> str:
    """Say why a type cannot be passed by value."""
    if "::" in type_name:
        return f"'{type_name}' is qualified; expected a global struct, named without a namespace"
    declared = re.search(rf"\b(struct|class)\b[^;{{]*\b{re.escape(type_name)}\b[^;{{]*\{{", text)
    if declared:
        return (
            f"'{type_name}' is not written as a plain global 'struct {type_name} {{' "
            "(no namespace, base, alignas or class)"
        )
    if re.search(rf"\}}\s*{re.escape(type_name)}\s*;", text):
        return f"'{type_name}' is a typedef; expected 'struct {type_name} {{'"
    return f"type '{type_name}' is unknown; expected GM_ADDR, T*, a fixed-width scalar, float, bool or a plain struct"


def parse_parameter(raw: str, kernel: str, text: str, structs: dict[str, str]) -> Parameter:
    """Parse one parameter as the toolkit's script would, or raise SignatureError."""

    def fail(why: str) -> SignatureError:
        return SignatureError(f"kernel {kernel}, parameter '{raw}': {why}")

    parts = [part for part in raw.split() if part not in ("const", "__restrict__", "__restrict", "struct")]
    is_gm = bool(parts) and parts[0] == "__gm__"
    if is_gm:
        parts = parts[1:]
    if len(parts) != 2:
        raise fail(f"{len(parts)} words after qualifiers; expected exactly a type and a name")
    type_name, name = parts
    if name.startswith(("*", "&")):
        raise fail(f"write '{type_name}{name[0]} {name[1:]}': the star must be attached to the type")
    if type_name == "GM_ADDR" or (is_gm and type_name.endswith("*")):
        return Parameter("pointer", type_name, name)
    if type_name.endswith("*"):
        return Parameter("pointer", type_name, name)
    if type_name.endswith("&"):
        raise fail("references cannot be passed to a kernel")
    if type_name in SCALARS:
        return Parameter("scalar", type_name, name)
    if type_name in structs:
        return Parameter("struct", type_name, name)
    raise fail(refusal(type_name, text))


def needed_structs(name: str, structs: dict[str, str]) -> dict[str, str]:
    """Return the struct and the structs of its members, members first; refuse what is not plain."""
    body = structs[name][structs[name].index("{") + 1 :]
    if re.search(r"\(", body) or re.search(r"\b(virtual|operator|template|alignas|using)\b", body):
        raise SignatureError(f"struct {name} has functions or attributes; expected only fixed-width members")
    needed: dict[str, str] = {}
    for word in re.findall(r"\b[A-Za-z_]\w*\b", body):
        if word in structs and word != name:
            needed.update(needed_structs(word, structs))
    needed[name] = structs[name]
    return needed


def parse_source(source: Path, include_dirs: list[Path], compiler: str = os.environ.get("CXX", "c++")) -> list[Kernel]:
    """Find the kernels that a source file defines."""
    text = gather_text(source, include_dirs)
    own = own_text(source, text, include_dirs, compiler)
    structs = struct_texts(text)
    kernels = []
    for returns, name, parameters in KERNEL.findall(own):
        if returns != "void":
            raise SignatureError(f"kernel {name} returns {returns}; expected void")
        kernel = Kernel(name, [])
        for raw in filter(None, (" ".join(part.split()) for part in parameters.split(","))):
            if raw == "void":
                continue
            parameter = parse_parameter(raw, name, text, structs)
            kernel.parameters.append(parameter)
            if parameter.kind == "struct":
                kernel.structs.update(needed_structs(parameter.type_name, structs))
        kernels.append(kernel)
    missed = set(ANY_KERNEL.findall(own)) - {kernel.name for kernel in kernels}
    if missed:
        raise SignatureError(
            f'{source.name}: {sorted(missed)} not written as extern "C" __global__ __aicore__ void name(...) {{'
        )
    return kernels


def host_parameters(kernel: Kernel) -> str:
    """Return the launch function's parameters after blockDim and stream."""
    spelled = {"pointer": "void* {n}", "scalar": "{t} {n}", "struct": "{t}* {n}"}
    return "".join(", " + spelled[p.kind].format(t=p.type_name, n=p.name) for p in kernel.parameters)


def header_text(kernel: Kernel) -> str:
    """Return the launch header, which the caller includes after the structs it names."""
    return f"""// Generated from the signature of kernel {kernel.name}.
#ifndef ACLRTLAUNCH_{kernel.name.upper()}_H
#define ACLRTLAUNCH_{kernel.name.upper()}_H

#include <cstdint>

typedef void* aclrtStream;

#ifndef ACLRT_LAUNCH_KERNEL
#define ACLRT_LAUNCH_KERNEL(kernel_func) aclrtlaunch_##kernel_func
#endif

extern "C" uint32_t aclrtlaunch_{kernel.name}(uint32_t blockDim, aclrtStream stream{host_parameters(kernel)});

#endif
"""


def stub_text(kernels: list[Kernel]) -> str:
    """Return the source of all launch functions."""
    structs: dict[str, str] = {}
    for kernel in kernels:
        structs.update(kernel.structs)
    parts = ["// Generated: runs kernels in the device simulator.\n", "#include <cstdint>\n"]
    parts += ['#include "ascend_sim/launch.h"\n\n', "\n".join(structs.values()), "\n"]
    device = {"pointer": "uint8_t*", "scalar": "{t}", "struct": "{t}"}
    for kernel in kernels:
        fields = [(device[p.kind].format(t=p.type_name), p) for p in kernel.parameters]
        # The kernel is declared by its C name only: pointer types do not matter to a C symbol.
        types = ", ".join(kind for kind, _ in fields)
        values = ", ".join(f"args.{p.name}" for p in kernel.parameters)
        given = {"pointer": "static_cast<uint8_t*>({n})", "scalar": "{n}", "struct": "*{n}"}
        initial = ", ".join(given[p.kind].format(n=p.name) for p in kernel.parameters)
        members = "".join(f"    {kind} {p.name};\n" for kind, p in fields) or "    int32_t none;\n"
        parts.append(
            f"""
extern "C" void {kernel.name}({types});

namespace {{

struct Arguments_{kernel.name} {{
{members}}};

void Run_{kernel.name}(const void* raw) {{
    const auto& args = *static_cast<const Arguments_{kernel.name}*>(raw);
    static_cast<void>(args);
    {kernel.name}({values});
}}

}}  // namespace

extern "C" uint32_t aclrtlaunch_{kernel.name}(uint32_t blockDim, void* stream{host_parameters(kernel)}) {{
    const Arguments_{kernel.name} args{{{initial}}};
    return ascend_sim_launch("{kernel.name}", blockDim, stream, &Run_{kernel.name}, &args, sizeof(args));
}}
"""
        )
    return "".join(parts)


def main(argv: list[str]) -> int:
    """Entry point: write headers and the stub source to ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for aclrtlaunch_*.h and launch_stubs.cpp")
    parser.add_argument("--include-dir", type=Path, action="append", default=[], help="where index headers are")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"), help="whose preprocessor expands macros")
    parser.add_argument("sources", type=Path, nargs="+")
    options = parser.parse_args(argv)
    kernels: list[Kernel] = []
    try:
        for source in options.sources:
            kernels += parse_source(source, options.include_dir, options.compiler)
        names = [kernel.name for kernel in kernels]
        if len(set(names)) != len(names):
            raise SignatureError(f"two kernels share a name: {sorted(names)}")
    except SignatureError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    for kernel in kernels:
        (options.out / f"aclrtlaunch_{kernel.name}.h").write_text(header_text(kernel))
    (options.out / "launch_stubs.cpp").write_text(stub_text(kernels))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
