"""Plain-Python oracle of a step's rows, page tables and slots: one definition at a time, straight from docs/spec.md."""


def new_tokens(form, length, operand, width):
    """(start, number of new tokens, entries of the token tensor) of a row; start and number are 0 for padding."""
    if form == "prefill":
        start, entries = operand, length - operand
    elif form == "decode":
        start, entries = length - 1, 1
    elif form == "verify":
        start, entries = length, width
    else:
        start, entries = length, operand
    if length == 0 or entries == 0:
        return 0, 0, entries
    return start, entries, entries


def completed_groups(start, count, ratio):
    """Groups whose last token is one of the positions start .. start + count - 1."""
    return [p // ratio for p in range(start, start + count) if p % ratio == ratio - 1]


def capacity(num_tokens, num_rows, ratio):
    return max(1, min(num_tokens, num_tokens // ratio + num_rows))


def kept_from(start, ratio, page):
    """First position of the pages that hold what the compressor of ``ratio`` still reads at length ``start``."""
    open_group = start // ratio
    first_group = max(0, open_group - 1) if ratio == 4 else open_group
    return first_group * ratio - (first_group * ratio) % page


def window_from(start, window, page):
    first = max(0, start - window + 1)
    return first - first % page


def padded(values, size, filler=0):
    assert len(values) <= size
    return values + [filler] * (size - len(values))
