"""``python -m dsv4_npu_ops doctor``: what is installed, what is replaced in engines, and whether the ops are right."""

import argparse
import sys

from dsv4_npu_ops.doctor import report


def main() -> int:
    """Exit status: 0 if every op that was tried gave the right values."""
    parser = argparse.ArgumentParser(prog="python -m dsv4_npu_ops", description=__doc__)
    parser.add_argument("command", choices=["doctor"])
    parser.add_argument("--device", help="where the ops are tried; an NPU if there is one, else the CPU")
    arguments = parser.parse_args()
    return report(arguments.device)


sys.exit(main())
