"""Where the block that ends last spends its time, by the simulator's time model: functions of a kernel, inclusive.

    python bench/model_profile.py step [--shape "B=64 n=4 context=8192"] [--least 1]

A model; nothing here was measured on a device. Cycles are those of the scalar unit, which waits for the other pipes
where flags and barriers say so; a function's own callees count for it where the host's compiler has inlined them.
"""

import argparse
import subprocess
from collections import defaultdict

from model_times import CYCLES_PER_US, LIBRARY, cases, device_with_code


def call_chains(offsets: list[int]) -> dict[int, list[str]]:
    """Functions of the kernels that each basic block is inlined into, outermost first."""
    command = ["addr2line", "-e", str(LIBRARY), "-i", "-f", "-C", "-a"]
    asked = "\n".join(hex(offset) for offset in offsets)
    lines = subprocess.run(command, input=asked, check=True, capture_output=True, text=True).stdout.splitlines()
    chains: dict[int, list[str]] = {}
    frames: list[str] = []
    index = 0
    while index < len(lines):
        if lines[index].startswith("0x"):
            frames = chains[int(lines[index], 16)] = []
            index += 1
        name, place = lines[index].split("(")[0], lines[index + 1]
        if "/csrc/" in place:
            frames.insert(0, name.replace("dsv4::kernel::", "").replace("dsv4::", ""))
        index += 2
    return chains


def profile(cycles: dict[int, float]) -> dict[tuple[str, ...], float]:
    """Cycles by call chain and every beginning of one."""
    found: dict[tuple[str, ...], float] = defaultdict(float)
    chains = call_chains([offset for offset in cycles if offset])
    for offset, spent in cycles.items():
        chain = tuple(chains.get(offset, ["arguments"]))
        for depth in range(1, len(chain) + 1):
            found[chain[:depth]] += spent
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op")
    parser.add_argument("--shape", default="", help="part of the shape's name; default the op's first")
    parser.add_argument("--least", type=float, default=1.0, help="percent of the time that a line is about at least")
    parser.add_argument("--all", action="store_true", help="the sum over all blocks instead of the last one")
    arguments = parser.parse_args()
    device = device_with_code()
    case = next(case for case in cases() if case.op == arguments.op and arguments.shape in case.shape)
    device.keep_code_times(True)
    device.take_counters()
    case.run()
    launch = device.take_counters()[-1]
    ends = [block["model_cycles"]["end"] for block in launch["per_block"]]
    number = max(range(len(ends)), key=ends.__getitem__)
    blocks = launch["per_block"] if arguments.all else [launch["per_block"][number]]
    end = ends[number] / CYCLES_PER_US
    print(f"{case.op} {case.shape}: block {number} of {launch['blocks']} ends last, {end:.2f} us")
    print("ends of all blocks, us:", " ".join(f"{end / CYCLES_PER_US:.1f}" for end in ends))
    cycles: dict[int, float] = defaultdict(float)
    for block in blocks:
        for offset, spent in block["code_cycles"].items():
            cycles[int(offset)] += spent
    found = profile(cycles)
    for chain in sorted(found):
        if found[chain] * 100 >= arguments.least * sum(cycles.values()):
            print(f"{found[chain] / CYCLES_PER_US:7.2f}  {'  ' * (len(chain) - 1)}{chain[-1]}")


if __name__ == "__main__":
    main()
