"""Plain-Python oracle of the one op for a verify step."""

from reference.compress_metadata import compress_metadata
from reference.verify_bundle import verify_bundle


def verify_step(
    tables, requests, lengths, widths, cos, sin, *, page, window, columns, num_tokens=None, capacities=None
):
    """cos, sin: lists of rows; the rest as in the two oracles it is made of. Returns one dict of lists."""
    result = verify_bundle(tables, requests, lengths, widths, num_tokens=num_tokens, capacities=capacities)
    result |= compress_metadata(
        "ragged",
        tables,
        requests,
        lengths,
        widths,
        0,
        page=page,
        window=window,
        num_tokens=num_tokens,
        columns=columns,
        capacities=capacities,
    )
    for pool in ("c4", "c128"):
        result[f"{pool}_cos"] = [cos[p] for p in result[f"positions_{pool}"]]
        result[f"{pool}_sin"] = [sin[p] for p in result[f"positions_{pool}"]]
    return result
