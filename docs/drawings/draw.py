"""Draws the pictures of docs/concepts.md; the pages and slots in them come from an allocator and from the ops.

    python docs/drawings/draw.py           # writes the SVG files beside this script
    python docs/drawings/draw.py --check   # says which of them would change

All pictures show one request: the first of the README's example. Pages have 16 slots, the sliding window 32 tokens.
"""

import sys
from pathlib import Path

import torch

import dsv4_npu_ops as d
from dsv4_npu_ops.layout import POOLS, RAW_TOKENS_PER_SLOT

FOLDER = Path(__file__).parent
P, WINDOW, PROMPT, WIDTH, ACCEPTED = 16, 32, 126, 4, 2
INK, FAINT, KEPT, NEW, GONE = "#222", "#888", "#cfe3f7", "#f9d9a8", "#f2f2f2"


class Drawing:
    """An SVG picture of rectangles, lines and text, on white."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size, self.title, self.parts = (
            (width, height),
            title,
            [f'<rect width="{width}" height="{height}" fill="#fff"/>'],
        )

    def box(self, x: float, y: float, width: float, height: float, fill: str, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="3 3"' if dashed else ""
        stroke = FAINT if dashed else INK
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{stroke}"{dash}/>'
        )

    def text(self, x: float, y: float, text: str, anchor: str = "start", color: str = INK, size: int = 12) -> None:
        text = text.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}" font-size="{size}">{text}</text>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, color: str = INK, dashed: bool = False, arrow: bool = False
    ) -> None:
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        head = ' marker-end="url(#head)"' if arrow else ""
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}"{dash}{head}/>')

    def svg(self) -> str:
        width, height = self.size
        head = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                f'height="{height}" font-family="Helvetica, Arial, sans-serif">',
                f"<title>{self.title}</title>",
                head,
                *self.parts,
                "</svg>\n",
            ]
        )


class Example:
    """The README's request through its prefill, the reservation of a verify, and eviction."""

    def __init__(self) -> None:
        self.layout = d.KVLayout(P, WINDOW, max_requests=4, num_pages=dict.fromkeys(POOLS, 40))
        self.tables = d.RequestTables(self.layout)
        alloc = d.KVAllocator(self.layout, self.tables)
        alloc.alloc_extend([0, 1], [0, 0], [PROMPT, 5])
        self.prefilled = self.pages()
        alloc.reserve_extend([0, 1], [PROMPT, 5], [PROMPT + WIDTH, 9])
        self.reserved = self.pages()
        angles = torch.zeros(512, 4)
        rope = d.build_rope_tables(torch.polar(torch.ones_like(angles), angles), torch.float32)
        self.step = d.build_verify_step(self.tables, torch.tensor([0]), torch.tensor([PROMPT]), WIDTH, *rope)
        alloc.evict([0, 1], [PROMPT + ACCEPTED, 6])
        self.evicted = self.pages()

    def pages(self) -> dict[str, list[int]]:
        """Entries of the request's row in each table."""
        return {pool: self.tables.pools[pool].table[0].tolist() for pool in POOLS}


LEFT, SCALE = 108, 5.0  # where token 0 is, and the width of a token


def x_of(token: float) -> float:
    return LEFT + SCALE * token


def strip(drawing: Drawing, y: int, pool: str, pages: list[int], new: set[int], gone: set[int]) -> None:
    """A pool's pages of the request, as wide as the tokens that they are for."""
    tokens = P * RAW_TOKENS_PER_SLOT[pool]
    drawing.text(8, y + 19, pool, size=13)
    for index in range(len(pages)):
        begin, end = x_of(index * tokens), min(x_of((index + 1) * tokens), x_of(160))
        if begin >= x_of(144):
            break
        page = pages[index]
        if page:
            drawing.box(begin, y, end - begin, 28, NEW if page in new else KEPT)
            drawing.text(begin + 6, y + 18, f"page {page}")
        else:
            drawing.box(begin, y, end - begin, 28, GONE if index in gone else "none", dashed=True)
            drawing.text(begin + 6, y + 18, "given back" if index in gone else "none", color=FAINT)


def ruler(drawing: Drawing, y: int) -> None:
    for token in range(0, 145, 16):
        drawing.line(x_of(token), y, x_of(token), y + 5)
        drawing.text(x_of(token), y - 4, str(token), "middle", FAINT, 11)
    drawing.line(x_of(0), y + 5, x_of(160), y + 5)
    drawing.text(8, y + 5, "token", color=FAINT)


def mark(drawing: Drawing, token: int, top: int, bottom: int, label: str) -> None:
    drawing.line(x_of(token), top, x_of(token), bottom, "#b00", dashed=True)
    drawing.text(x_of(token) + 4, bottom, label, color="#b00")


def pools(example: Example) -> Drawing:
    drawing = Drawing(930, 330, "The six pools of one request: 126 tokens prefilled, 4 more reserved for a verify")
    drawing.text(8, 20, "After a prefill of 126 tokens (blue) and the reservation of a verify of 4 (orange)", size=14)
    ruler(drawing, 52)
    for row, pool in enumerate(POOLS):
        new = set(example.reserved[pool]) - set(example.prefilled[pool])
        strip(drawing, 68 + 38 * row, pool, example.reserved[pool], new, set())
    mark(drawing, PROMPT, 60, 312, "L = 126")
    return drawing


def window(example: Example) -> Drawing:
    length = PROMPT + ACCEPTED
    drawing = Drawing(930, 240, "A request's window and states after eviction to 128 committed tokens")
    drawing.text(
        8, 20, "2 of the 4 were accepted: L = 128. Eviction has given back whole pages behind the windows", size=14
    )
    ruler(drawing, 52)
    starts = {"swa": length - WINDOW + 1, "c4_state": (length // 4 - 1) * 4, "c128_state": length // 128 * 128}
    for row, pool in enumerate(starts):
        y = 68 + 44 * row
        pages = example.evicted[pool]
        gone = {index for index, page in enumerate(example.reserved[pool]) if page and not pages[index]}
        strip(drawing, y, pool, pages, set(), gone)
        first = x_of(starts[pool])
        drawing.line(first, y + 34, x_of(length), y + 34, "#b00")
        drawing.text(first - 4, y + 38, f"needed from {starts[pool]}", "end", "#b00", 11)
    mark(drawing, length, 60, 212, "L = 128")
    drawing.text(
        8,
        232,
        "c4_state never had the first 7: a prefill takes the tail of its states only. "
        "Tokens 128 and 129 were rejected; their pages stay.",
        color=FAINT,
        size=11,
    )
    return drawing


def group() -> Drawing:
    drawing = Drawing(
        800, 214, "Groups of ratio 4: which step completes one, what it reads, where its entry is rotated"
    )
    drawing.text(8, 20, "Groups of ratio 4 at L = 126 with a verify of 4 tokens", size=14)
    left, size = 40, 44
    for column, token in enumerate(range(116, 132)):
        x = left + size * column
        new = PROMPT <= token < PROMPT + WIDTH
        drawing.box(
            x, 64, size - 4, 28, NEW if new else KEPT if token < PROMPT else "none", dashed=token >= PROMPT + WIDTH
        )
        drawing.text(x + 20, 82, str(token), "middle")
    for index, number in enumerate((29, 30, 31, 32)):
        begin, end = left + 4 * size * index, left + 4 * size * (index + 1) - 4
        drawing.line(begin, 54, end, 54)
        drawing.text((begin + end) / 2, 48, f"group {number}", "middle")
    first, last = left + 4 * size * 1, left + 4 * size * 3 - 4
    drawing.line(first, 104, last, 104, "#b00")
    drawing.text(first, 119, "group 31 is pooled from the states of its own tokens and of group 30", color="#b00")
    x = left + size * 8 + 20
    drawing.line(x, 150, x, 94, arrow=True)
    drawing.text(x - 8, 150, "its entry is rotated at position 124, that of its first token", "end")
    x = left + size * 11 + 20
    drawing.line(x, 176, x, 94, arrow=True)
    drawing.text(x - 8, 176, "token 127 completes it: this step writes the entry", "end")
    drawing.text(
        8,
        204,
        "Group 32 stays open after this step, whatever is accepted; the states of its tokens stay in c4_state.",
        color=FAINT,
        size=11,
    )
    return drawing


def verify_step(example: Example) -> Drawing:
    slots, metadata = example.step.out_cache_loc, example.step.metadata
    drawing = Drawing(930, 330, "A verify step through the tables: from positions to pages to slots")
    drawing.text(
        8,
        20,
        "build_verify_step, request 0, L = 126, 4 tokens: position -> column of the table -> page -> slot",
        size=14,
    )
    columns = [("position", 8), ("column, offset", 110), ("table full, row 0", 270), ("slot in full", 640)]
    for label, x in columns:
        drawing.text(x, 48, label, color=FAINT)
    row = example.reserved["full"]
    for column, page in enumerate(row[:10]):
        drawing.box(270 + 34 * column, 92, 34, 26, NEW if column in (7, 8) else "none")
        drawing.text(287 + 34 * column, 109, str(page), "middle")
        drawing.text(287 + 34 * column, 86, str(column), "middle", FAINT, 10)
    for i, slot in enumerate(slots.out_full_loc.tolist()):
        position, y = PROMPT + i, 72 + 24 * i
        drawing.text(8, y, str(position))
        drawing.text(110, y, f"{position // P}, {position % P}")
        drawing.text(640, y, f"{row[position // P]} * {P} + {position % P} = {slot}")
        drawing.line(170, y - 4, 262, y - 4, FAINT, arrow=True)
        drawing.line(616, y - 4, 634, y - 4, FAINT, arrow=True)
    drawing.line(8, 176, 922, 176, FAINT)
    drawing.text(8, 198, "Groups that the step completes", color=FAINT)
    groups = [
        ("c4", 4, slots.out_c4_loc, metadata.positions_c4),
        ("c128", 128, slots.out_c128_loc, metadata.positions_c128),
    ]
    for i, (pool, ratio, locs, positions) in enumerate(groups):
        y, number = 222 + 24 * i, PROMPT // ratio
        page, slot = example.reserved[pool][number // P], locs[0].item()
        drawing.text(8, y, f"{pool}: group {number} = {PROMPT} // {ratio}")
        drawing.text(270, y, f"column {number // P}: page {page}")
        drawing.text(400, y, f"slot {page} * {P} + {number % P} = {slot}")
        drawing.text(640, y, f"rotated at {number} * {ratio} = {positions[0].item()}")
    drawing.line(8, 262, 922, 262, FAINT)
    vectors = ("start_pos", "seqused", "kv_lens", "cu_seqlens")
    drawing.text(8, 286, ", ".join(f"{name} {getattr(metadata, name).tolist()}" for name in vectors))
    swa = metadata.swa_page_table[0, :10].tolist()
    drawing.text(8, 310, f"swa_page_table, from the window of token {PROMPT} on: {swa}")
    return drawing


def drawings() -> dict[str, str]:
    """Pictures by file name."""
    example = Example()
    return {
        "pools.svg": pools(example).svg(),
        "group.svg": group().svg(),
        "window.svg": window(example).svg(),
        "verify_step.svg": verify_step(example).svg(),
    }


def main() -> int:
    changed = [
        name for name, svg in drawings().items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != svg
    ]
    if "--check" in sys.argv[1:]:
        print("\n".join(changed) or "all as drawn")
        return 1 if changed else 0
    for name in changed:
        (FOLDER / name).write_text(drawings()[name])
    print(f"{len(changed)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
