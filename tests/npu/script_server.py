"""Runs scripts in processes that are forked from one which has imported torch_npu but started no device.

Importing it takes seconds, a fork none. torch_npu and the simulated device read their settings when a device starts, so
that each script has its own. Two things need a new interpreter: what torch_npu reads when it is imported, and its
clean-up at exit, which a forked script leaves without.

As a program: a line of JSON on stdin for each script, and its exit code as a line on stdout when it has ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

NPU_SIM = Path(__file__).resolve().parents[1] / "npu_sim"
PRELUDE = f"""
import sys
sys.path.insert(0, {str(NPU_SIM)!r})
import npu_sim
sim = npu_sim.load()
import torch
torch.ops.load_library(str(npu_sim.build_dir() / "test_ops" / "libnpu_sim_test_ops.so"))
add_out = torch.ops.npu_sim_test.add_out
"""
"""What a script finds: torch, the simulated device as `sim`, and an op of tests/npu_sim/test_ops."""
TIMEOUT_S = 300


class ScriptServer:
    """The process that forks; started with the first script. `close` ends it."""

    def __init__(self) -> None:
        self._server: subprocess.Popen | None = None

    def run(self, script: str, environment: dict[str, str]) -> subprocess.CompletedProcess:
        """Runs a script after PRELUDE; after TIMEOUT_S seconds SIGALRM ends it."""
        if self._server is None:
            # The arithmetic library of numpy would start threads, which a fork does not copy.
            self._server = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        assert self._server.stdin is not None and self._server.stdout is not None
        with tempfile.NamedTemporaryFile("r") as stdout, tempfile.NamedTemporaryFile("r") as stderr:
            json.dump([script, environment, [stdout.name, stderr.name]], self._server.stdin)
            print(file=self._server.stdin, flush=True)
            code = int(self._server.stdout.readline())
            return subprocess.CompletedProcess(script, code, stdout.read(), stderr.read())

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate(timeout=TIMEOUT_S)


def run_fresh(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess:
    """Runs a script after PRELUDE in a new interpreter."""
    command = [sys.executable, "-c", PRELUDE + script]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=TIMEOUT_S)


def _run_and_exit(script: str, environment: dict[str, str], outputs: list[str], names: dict[str, object]) -> None:
    signal.alarm(TIMEOUT_S)
    for descriptor, path in enumerate(outputs, start=1):
        os.dup2(os.open(path, os.O_WRONLY), descriptor)
    os.environ.update(environment)
    code = 0
    try:
        exec(script, names)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    exec(PRELUDE, names)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"{len(threads)} threads, expected one: a fork copies only the one that calls it"
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run_and_exit(*json.loads(line), names)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)  # torch_npu's clean-up takes seconds


if __name__ == "__main__":
    _serve()
