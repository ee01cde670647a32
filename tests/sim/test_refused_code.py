"""What the device would not perform does not compile, with a reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[1] / "ascend_sim" / "include"

# statement, words of the diagnostic
REFUSED = [
    ("Duplicate(i64, int64_t(0), 8);", "Duplicate: the device fills 2- and 4-byte types only"),
    ("Adds(u32, u32, 1u, 8);", "Adds: the device computes int16_t, int32_t, half, float only"),
    ("Add(i64, i64, i64, 8);", "Add: the device computes int16_t, int32_t, half, float only"),
    ("Muls(bf, bf, bfloat16_t(1), 8);", "Muls: the device computes int16_t, int32_t, half, float only"),
    ("Div(i32, i32, i32, 8);", "Div: the device computes half, float only"),
    ("And(i32, i32, i32, 8);", "And: the device computes int16_t, uint16_t only"),
    ("Not(i32, i32, 8);", "Not: the device computes int16_t, uint16_t only"),
    ("Abs(i32, i32, 8);", "Abs: the device computes half, float only"),
    (
        "ShiftRight(i64, i64, int64_t(1), 8);",
        "ShiftRight: the device computes int16_t, uint16_t, int32_t",
    ),
    ("Gather(i64, i64, u32, 0u, 8u);", "Gather: the device does nothing for other element sizes"),
    ("Compare(u8, i64, i64, CMPMODE::EQ, 64u);", "Compare: half, float and (EQ only) int32_t"),
    ("Select(i32, u8, i32, i32, SELMODE::VSEL_TENSOR_TENSOR_MODE, 64u);", "Select: half and float only"),
    ("ReduceSum(i32, i32, i32, 8);", "reductions: the device reduces half and float only"),
    ("Cast(u32, i32, RoundMode::CAST_NONE, 8u);", "Cast: the device does not convert between these types"),
    ("Cast(bf, f16, RoundMode::CAST_RINT, 8u);", "Cast: the device does not convert between these types"),
    ("CreateVecIndex(i64, int64_t(0), 8u);", "CreateVecIndex: int16_t, int32_t, half, float only"),
    ("GatherMask(i32, i32, u8, false, 0u, GatherMaskParams{}, count);", "GatherMask: the bit tensor is uint16_t"),
    ("PipeBarrier<PIPE_S>();", "PIPE_S is in order already"),
    ("Copy(i64, i64, 4, 1, CopyRepeatParams{});", "Copy: the device does nothing for other element sizes"),
]
# no declaration fits at all
UNKNOWN = [
    "Adds(i32, i32, int64_t(1), 8);",
    "Adds(f32, f32, 1, 8);",
    "Duplicate(f32, 0, 8);",
    "Scatter(i32, i32, u32, 0u, 8u);",
    "DataCopyPad(i32, gm, DataCopyExtParams{1, 4, 0, 0, 0});",
    "DataCopy(gm, gm, 8u);",
    "DataCopyPad(gm, i32, DataCopyExtParams{1, 4, 0, 0});",
    "Gather(i32, i32, i32, 0u, 8u);",
    "ReadGmByPassDCache(gm.GetPhyAddr());",
]
DECLARATIONS = """
#include "kernel_operator.h"
using namespace AscendC;
extern LocalTensor<int64_t> i64; extern LocalTensor<int32_t> i32; extern LocalTensor<uint32_t> u32;
extern LocalTensor<uint8_t> u8; extern LocalTensor<float> f32; extern LocalTensor<half> f16;
extern LocalTensor<bfloat16_t> bf; extern GlobalTensor<int32_t> gm; extern uint64_t count;
"""


def test_refused_statements(tmp_path: Path) -> None:
    source = tmp_path / "refused.cpp"
    body = [f"void f{i}() {{\n{statement}\n}}" for i, (statement, _) in enumerate(REFUSED)]
    body += [f"void g{i}() {{\n{statement}\n}}" for i, statement in enumerate(UNKNOWN)]
    source.write_text(DECLARATIONS + "\n".join(body))
    result = subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-fmax-errors=0", f"-I{INCLUDE}", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    for _, words in REFUSED:
        assert words in result.stderr, f"missing: {words}"
    first = source.read_text().splitlines().index("void g0() {") + 2
    for i, statement in enumerate(UNKNOWN):
        assert f"refused.cpp:{first + 3 * i}:" in result.stderr, statement
