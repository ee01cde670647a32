"""A prefill worker in a process of its own: prints its port, then serves one decode worker after another and prints why
it lost one, and the pages that its requests still own then.

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
    runner = make_runner(make_models())
    worker = PrefillWorker(runner, DyingEngine() if sys.argv[1:] else MooncakeEngine())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            try:
                worker.serve(connection)
            except (ComponentMismatch, TransferFailed) as error:
                available = runner.allocator.available_pages
                owned = sum(pages - available(pool) for pool, pages in runner.tables.layout.num_pages.items())
                print(f"{type(error).__name__}: {error}; {owned} pages owned", flush=True)


if __name__ == "__main__":
    main()
