"""A prefill worker in a process of its own: prints its port, then serves one decode worker after another.

With an argument N it kills itself in its first transfer after N of its copies.
"""

import os
import signal
import socket
import sys

from served_model import make_models, make_runner

from dsv4_npu_ops.disagg import ComponentMismatch, PageCopies
from dsv4_npu_ops.disagg.mooncake import MooncakeEngine
from dsv4_npu_ops.disagg.prefill import PrefillWorker
from dsv4_npu_ops.disagg.transfer import TransferFailed


class DyingEngine(MooncakeEngine):
    """Writes a few copies, then dies without a word."""

    def write(self, session: str, copies: PageCopies) -> None:
        some = int(sys.argv[1])
        assert some < len(copies.lens)
        super().write(session, PageCopies(copies.source[:some], copies.target[:some], copies.lens[:some]))
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    worker = PrefillWorker(make_runner(make_models()), DyingEngine() if sys.argv[1:] else MooncakeEngine())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            try:
                worker.serve(connection)
            except (ComponentMismatch, TransferFailed) as error:
                print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
