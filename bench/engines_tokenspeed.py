"""TokenSpeed's own slot mappings beside ``token_slots``, in one process: python bench/engines_tokenspeed.py

All six mappings of a step, from tables that leave out their first pages. Operations and time as in ``engine_table.py``.
"""

import argparse
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace

from engine_table import operations, print_header, print_row
from harness import compare

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="0.1.0")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--width", type=int, default=4)
    arguments = parser.parse_args()
    os.environ["TOKENSPEED_VERSION"] = arguments.version
    import torch
    from engines.tokenspeed import test_slots

    torch.set_num_threads(1)
    print_header(f"TokenSpeed {arguments.version}", f"{arguments.width} tokens a row, one thread")
    for rows in arguments.rows:
        draws = random.Random(rows)
        lengths = [draws.randint(arguments.width, test_slots.LONGEST) for _ in range(rows)]
        widths = torch.full((rows,), arguments.width)
        tokens = rows * arguments.width
        batch = SimpleNamespace(seq_lens=torch.tensor(lengths).int(), widths=widths, num_valid=tokens, seed=rows)
        step = test_slots.Step(batch, shortened=True)
        taken = compare(step.ours, step.theirs)
        before, after = operations(step.theirs), operations(step.ours)
        print_row("slot mappings of a step", rows, before, taken.baseline_us, after, taken.ours_us, taken.ratio)


if __name__ == "__main__":
    main()
