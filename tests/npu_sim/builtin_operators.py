"""Writes the source of the stand-in for libopapi.so: every built-in operator that torch_npu knows, failing by name."""

import re
import sys
from pathlib import Path

# Operator names lie in the wheel's library as C strings, beside the names of their workspace queries.
OPERATOR = re.compile(rb"\0(aclnn[A-Za-z0-9]+?)(?:GetWorkspaceSize)?(?=\0)")
AVAILABLE = {"aclnnInplaceFillScalar"}  # src/acl_fill.cpp


def operator_names(library: Path) -> list[str]:
    return sorted({match.decode() for match in OPERATOR.findall(library.read_bytes())} - AVAILABLE)


def source(names: list[str]) -> str:
    # The arguments differ from operator to operator and are not looked at.
    functions = [f"FAILING({name})" for name in names]
    return "\n".join(
        [
            '#include "ascend_device_sim.h"',
            "#define FAILING(name) \\",
            '    extern "C" int32_t name##GetWorkspaceSize() { return ascend_device_sim_builtin_operator(#name); } \\',
            '    extern "C" int32_t name() { return ascend_device_sim_builtin_operator(#name); }',
            *functions,
            "",
        ]
    )


def main() -> None:
    library, target = Path(sys.argv[1]), Path(sys.argv[2])
    names = operator_names(library)
    if not names:
        raise SystemExit(f"{library}: got no operator names, expected names that start with aclnn")
    target.write_text(source(names))


if __name__ == "__main__":
    main()
