"""Plain-Python oracle of the RoPE row gather."""


def rope_gather(cos, sin, positions, inverse=False):
    """cos, sin: lists of rows; positions: list of int. Returns the two lists of gathered rows."""
    sign = -1.0 if inverse else 1.0
    return [list(cos[p]) for p in positions], [[sign * v for v in sin[p]] for p in positions]
