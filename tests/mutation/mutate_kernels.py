"""Removes every flag, barrier, bound and guard of the device kernels, one at a time; the op tests must notice each.

    python tests/mutation/mutate_kernels.py [op ...] [--only text] [--jobs n]

Expects the simulated backend to be built (`make build-sim`). A mutant is compiled into its op's kernel and meets the
op's tests with two block counts; a shared header's mutant that passes then meets the other ops that include it, and at
last the first of them with all block counts. Verdicts are kept in build/mutation/verdicts.json, so that a run goes on
where the last one stopped; a mutant whose line has changed is a new one. Prints a line a mutant and exits with 1 if one
survives.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from functools import partial
from pathlib import Path

from forked_tests import FULL, NARROW, tests_pass
from kernel_library import CSRC, ROOT, BuildError, KernelLibrary, device_headers, kernel_of
from mutants import Mutant, mutants_of

OUT = ROOT / "build" / "mutation"
VERDICTS = OUT / "verdicts.json"

ORDER = [
    "step",
    "uniform_step",
    "draft_steps",
    "advance_step",
    "write_req_tables",
    "reserve_extend",
    "release_pages",
    "rope_gather",
    "rope_tables",
    "apply_rotary",
    "compressor_metadata",
]
"""The order in which ops meet a shared header's mutant."""
OPS = sorted(
    (kernel.name.removesuffix("_kernel.cpp") for kernel in CSRC.glob("ops/*/*_kernel.cpp")),
    key=lambda op: (op not in ORDER, ORDER.index(op) if op in ORDER else 0, op),
)

FIRST = {
    "row_values.h": "write_req_tables",
    "pool_slots.h": "step",
    "slot_tile.h": "step",
    "page_table_slots.h": "step",
    "slot_table_slots.h": "step",
    "ring_slots.h": "step",
    "errors.h": "step",
    "pipes.h": "reserve_extend",
    "memory.h": "apply_rotary",
    "elements.h": "rope_gather",
    "iota.h": "reserve_extend",
}
"""The op that exercises a shared header most for its price."""

KIND_ORDER = ("order", "barrier", "flag", "flag with its partner", "validity check", "fault check", "bound", "guard")
CPU_SECONDS = {"narrow": 60, "full": 300}


def ops_of(path: Path) -> list[str]:
    """Ops whose kernels contain a file, the first to try first."""
    using = [op for op in OPS if path == kernel_of(op) or path in device_headers(kernel_of(op))]
    return sorted(using, key=lambda op: op != FIRST.get(path.name))


def folder_of_process() -> Path:
    return OUT / f"job_{os.getpid()}"


def unchanged_kernel_passes(op: str, library: KernelLibrary) -> bool:
    folder = folder_of_process()
    return tests_pass(op, library.link(folder), NARROW, folder / "tests.log", CPU_SECONDS["full"])


def judge(mutant: Mutant, library: KernelLibrary) -> tuple[str, str, float]:
    """Verdict on a mutant, the op that caught it, and how many seconds it took."""
    folder, begin = folder_of_process(), time.monotonic()

    def verdict(word: str, op: str) -> tuple[str, str, float]:
        return word, op, time.monotonic() - begin

    for run, name, most_ops in ((NARROW, "narrow", len(OPS)), (FULL, "full", 1)):
        for op in ops_of(mutant.path)[:most_ops]:
            try:
                built = library.link(folder, op, mutant.path, mutant.text)
            except BuildError:
                return verdict("does not compile", op)
            if not tests_pass(op, built, run, folder / "tests.log", CPU_SECONDS[name]):
                return verdict("caught", op)
    return verdict("SURVIVED", "")


def all_mutants(ops: list[str], only: str) -> list[Mutant]:
    """Every mutant of the ops' kernels and what they include, the dearest kinds of mistake first."""
    files = {kernel_of(op) for op in ops} | {header for op in ops for header in device_headers(kernel_of(op))}
    mutants = [m for path in sorted(files) for m in mutants_of(path) if only in f"{path.relative_to(CSRC)} {m.kind}"]
    return sorted(mutants, key=lambda m: next(i for i, kind in enumerate(KIND_ORDER) if m.kind.startswith(kind)))


def key_of(mutant: Mutant) -> str:
    return f"{mutant.path.relative_to(CSRC)}: {mutant.kind}: {mutant.where}"


def print_table(mutants: list[Mutant], verdicts: dict[str, dict[str, str]]) -> None:
    """One line a file, for docs/mutation.md: of each group of kinds, how many mutants and how many are noticed."""
    groups = {"flags, orders, barriers, checks": KIND_ORDER[:6], "bounds": KIND_ORDER[6:7], "guards": KIND_ORDER[7:]}
    noticed = {key for key, known in verdicts.items() if known["verdict"] != "SURVIVED"}
    print("| file |" + "".join(f" {name} | noticed |" for name in groups))
    print("|---|" + "---|---|" * len(groups))
    for path in [*sorted({m.path for m in mutants}), None]:
        row = "all" if path is None else str(path.relative_to(CSRC))
        for kinds in groups.values():
            own = [m for m in mutants if path in (m.path, None) and m.kind.startswith(kinds)]
            row += f" | {len(own)} | {sum(key_of(m) in noticed for m in own)}"
        print(f"| {row} |")
    print(f"{sum(key_of(m) not in verdicts for m in mutants)} not judged")


def judge_all(mutants: list[Mutant], verdicts: dict[str, dict[str, str]], jobs: int) -> None:
    """Judges mutants in several processes; adds to the verdicts and writes them out."""
    library = KernelLibrary(OUT / "unchanged", OPS)
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        ops = [op for op in OPS if any(op in ops_of(mutant.path) for mutant in mutants)]
        passes = pool.map(partial(unchanged_kernel_passes, library=library), ops, chunksize=1)
        if failing := [op for op, good in zip(ops, passes, strict=True) if not good]:
            raise SystemExit(f"the tests of {', '.join(failing)} fail without any mutation, see {OUT}/job_*/tests.log")
        judged = pool.imap(partial(judge, library=library), mutants)
        for number, (mutant, (verdict, op, seconds)) in enumerate(zip(mutants, judged, strict=True), start=1):
            verdicts[key_of(mutant)] = {"verdict": verdict, "op": op}
            VERDICTS.write_text(json.dumps(verdicts, indent=1))
            place = f"{mutant.path.relative_to(CSRC)}:{mutant.line}"
            print(
                f"{number:3}/{len(mutants)} {verdict:16} {op:20} {place:60} {mutant.kind} {seconds:.0f} s", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="ops to mutate; all when none is named")
    parser.add_argument("--only", default="", help="part of 'path kind', such as 'step_rows.h order'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants judged at a time")
    parser.add_argument("--again", action="store_true", help="judge anew what has a verdict")
    parser.add_argument("--survivors", action="store_true", help="judge anew what survived")
    parser.add_argument("--table", action="store_true", help="only count the verdicts by file")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    mutants = all_mutants(arguments.ops or OPS, arguments.only)
    verdicts: dict[str, dict[str, str]] = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {}

    def is_waiting(mutant: Mutant) -> bool:
        known = verdicts.get(key_of(mutant))
        survived = known is not None and known["verdict"] == "SURVIVED"
        return known is None or arguments.again or (arguments.survivors and survived)

    waiting = [mutant for mutant in mutants if is_waiting(mutant)]
    if waiting and not arguments.table:
        judge_all(waiting, verdicts, arguments.jobs)
    print_table(mutants, verdicts)
    if arguments.table:
        return
    survivors = [m for m in mutants if verdicts[key_of(m)]["verdict"] == "SURVIVED"]
    print(f"{len(survivors)} of {len(mutants)} survived")
    for mutant in survivors:
        print(f"{mutant.path.relative_to(CSRC)}:{mutant.line} {mutant.kind}: {mutant.where}")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
