"""The loop of an engine over the six pools, without a model: requests and what a verify accepts are random.

    python examples/engine_loop.py [--requests 24] [--plot pages.png]

A request is admitted while a row is free and its prompt fits, prefilled in chunks, verified a few tokens at a time,
evicted behind its windows and freed at its end. The pools are too small for all rows: when one runs dry, the youngest
request is retracted.
"""

import argparse
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

import dsv4_npu_ops as d

PAGES = {"full": 40, "swa": 36, "c4": 14, "c128": 6, "c4_state": 14, "c128_state": 44}
LAYOUT = d.KVLayout(page_size=16, sliding_window=32, max_requests=6, max_context_len=512, num_pages=PAGES)
CHUNK, WIDTH = 64, 4  # prompt tokens of a prefill step, tokens of a verify


@dataclass
class Request:
    """A prompt of so many tokens and the length at which the request ends; of them ``committed`` are in the cache."""

    prompt: int
    end: int
    row: int = -1
    committed: int = 0


class Engine:
    """Runs requests, oldest first; ``step`` is a round of the scheduler."""

    def __init__(self, requests: list[Request]) -> None:
        self.tables = d.RequestTables(LAYOUT)
        self.alloc = d.KVAllocator(LAYOUT, self.tables)
        self.waiting, self.running, self.retractions = requests, [], 0
        self.rows = list(range(LAYOUT.max_requests))
        angles = torch.arange(512.0)[:, None] * 0.01 ** torch.linspace(0, 1, 4)
        self.rope = d.build_rope_tables(torch.polar(torch.ones_like(angles), angles), torch.float32)

    def step(self) -> None:
        while self.waiting and self.rows and self.fits(self.waiting[0]):
            self.waiting[0].row = self.rows.pop()
            self.running.append(self.waiting.pop(0))
        for phase, prefilling in ((self.prefill, True), (self.verify, False)):
            while batch := [one for one in self.running if (one.committed < one.prompt) == prefilling]:
                try:
                    phase(batch, [one.row for one in batch], [one.committed for one in batch])
                    break
                except d.PoolExhausted:  # a phase allocates first, so nothing has happened yet
                    self.retract(self.running[-1])

    def fits(self, one: Request) -> bool:
        """Whether its prompt fits now; nothing is kept for those that run (docs/spec.md, memory pressure)."""
        return LAYOUT.pages_needed(one.prompt)["full"] <= self.alloc.available_pages("full")

    def prefill(self, batch: list[Request], rows: list[int], lens: list[int]) -> None:
        ends = [min(one.prompt, one.committed + CHUNK) for one in batch]
        slots = self.alloc.alloc_extend(rows, lens, ends)
        metadata = d.build_compress_metadata_prefill(self.tables, *map(torch.tensor, (rows, lens, ends)))
        assert len(slots.out_full_loc) == len(metadata.positions)  # here the model's forward would read both
        self.commit(batch, rows, ends)

    def verify(self, batch: list[Request], rows: list[int], lens: list[int]) -> None:
        self.alloc.reserve_extend(rows, lens, [length + WIDTH for length in lens])
        where, old = torch.tensor(rows), torch.tensor(lens)
        step = d.build_verify_step(self.tables, where, old, WIDTH, *self.rope)
        sampled = torch.zeros(len(step.metadata.positions), dtype=torch.int64)  # here the model's forward would be
        accepted = torch.tensor([random.randint(1, WIDTH) for _ in batch])
        new = d.advance_step(self.tables, where, old, accepted, sampled, num_draft_tokens=WIDTH)
        self.commit(batch, rows, new.seq_lens.tolist())

    def commit(self, batch: list[Request], rows: list[int], lens: list[int]) -> None:
        for one, length in zip(batch, lens, strict=True):
            one.committed = length
        self.alloc.evict(rows, lens)
        self.leave([one for one in batch if one.committed >= one.end])

    def retract(self, one: Request) -> None:
        """Back to the front of the queue; all that it had in the cache is its prompt when it returns."""
        self.leave([one])
        one.prompt, one.committed, self.retractions = max(one.prompt, one.committed), 0, self.retractions + 1
        self.waiting.insert(0, one)

    def leave(self, gone: list[Request]) -> None:
        self.alloc.free([one.row for one in gone if one.committed])  # without a token it owns nothing yet
        self.rows += [one.row for one in gone]
        self.running = [one for one in self.running if one not in gone]

    def pages_in_use(self) -> dict[str, int]:
        return {pool: pages - self.alloc.available_pages(pool) for pool, pages in PAGES.items()}


def show(engine: Engine, number: int, done: int, total: int) -> None:
    """Occupancy: one line rewritten in place on a terminal, every 20th round elsewhere."""
    used = "  ".join(f"{pool} {pages:2}/{PAGES[pool]}" for pool, pages in engine.pages_in_use().items())
    line = f"round {number:3}  done {done:2}/{total}  running {len(engine.running)}  {used}"
    if sys.stdout.isatty():
        print(f"\r{line}", end="", flush=True)
    elif number % 20 == 0:
        print(line, flush=True)


def plot(history: list[dict[str, int]], path: Path) -> None:
    """Pages in use by pool over time, in shares of the pool."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    for pool, pages in PAGES.items():
        axes.plot([100 * used[pool] / pages for used in history], label=f"{pool}, {pages} pages")
    axes.set(xlabel="round of the scheduler", ylabel="pages in use, %", ylim=(0, 103))
    figure.legend(loc="outside right upper")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw pages by pool over time (needs matplotlib)")
    args = parser.parse_args()
    random.seed(0)
    prompts = [random.randint(1, 200) for _ in range(args.requests)]
    engine = Engine([Request(prompt, prompt + random.randint(20, 150)) for prompt in prompts])
    history: list[dict[str, int]] = []
    while engine.waiting or engine.running:
        engine.step()
        history.append(engine.pages_in_use())
        show(engine, len(history), len(prompts) - len(engine.waiting) - len(engine.running), len(prompts))
    end = "\n" if sys.stdout.isatty() else ""
    print(f"{end}{len(prompts)} requests in {len(history)} rounds, {engine.retractions} retractions")
    print("pages in use at the end:", sum(history[-1].values()))
    if args.plot:
        plot(history, args.plot)


if __name__ == "__main__":
    main()
