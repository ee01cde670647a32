"""What is known by size."""

from dsv4_npu_ops.layout.kept_sizes import KeptSizes


def test_many_sizes_are_forgotten_and_the_newest_is_kept():
    known = KeptSizes()
    for size in range(1000):
        assert known.keep(size, -size) == -size
        assert known[size] == -size
        assert len(known) <= 256
    known.keep(999, 5)
    assert known[999] == 5 and known.get(0) is None
