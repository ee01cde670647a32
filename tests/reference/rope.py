"""Plain-Python oracles of the RoPE frequencies, tables and rotation."""

import math
import struct


def frequencies(base, rope_dim, yarn=None):
    """Radians per position of every pair. yarn: (factor, original_max_pos, beta_fast, beta_slow) or None."""
    plain = [base ** (-2 * pair / rope_dim) for pair in range(rope_dim // 2)]
    if yarn is None:
        return plain
    factor, original, fast, slow = yarn
    # The (fractional) pair that turns so many times over the original context.
    low, high = (rope_dim * math.log(original / (turns * 2 * math.pi)) / 2 / math.log(base) for turns in (fast, slow))
    low, high = max(math.floor(low), 0), min(math.ceil(high), rope_dim - 1)
    result = []
    for pair, frequency in enumerate(plain):
        share = min(max((pair - low) / (high - low), 0.0), 1.0) if high > low else float(pair > low)
        result.append(frequency * (share / factor + 1 - share))
    return result


def tables(freqs):
    """freqs: rows of complex numbers. Returns the rows of cos and sin with each pair's value twice."""
    cos = [[part for value in row for part in (value.real, value.real)] for row in freqs]
    sin = [[part for value in row for part in (value.imag, value.imag)] for row in freqs]
    return cos, sin


def float32(value):
    """A Python float rounded to float32."""
    return struct.unpack("f", struct.pack("f", value))[0]


def rotate(head, cos, sin, inverse=False, product=float32):
    """One head's features, with the last len(cos) of them rotated. Python's float64 carries a product or sum of two
    float32 numbers precisely enough that rounding it to float32 is the float32 result; ``product`` float keeps it."""
    start = len(head) - len(cos)
    result = list(head)
    for i in range(0, len(cos), 2):
        a, b = float32(head[start + i]), float32(head[start + i + 1])
        s = [-sin[i], -sin[i + 1]] if inverse else [sin[i], sin[i + 1]]
        result[start + i] = product(product(a * cos[i]) - product(b * s[0]))
        result[start + i + 1] = product(product(b * cos[i + 1]) + product(a * s[1]))
    return result
