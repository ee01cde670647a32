"""The NPU library as a file."""

import os
import subprocess

from test_wheel import builder_paths


def test_no_message_names_a_folder_of_the_builder(ops):
    """Only the strings: the library that tests build has a run path into the build, that of a wheel has none."""
    command = ["readelf", "--string-dump=.rodata", "--wide", os.environ["DSV4_NPU_LIBRARY"]]
    strings = subprocess.run(command, check=True, capture_output=True).stdout
    assert builder_paths(strings) == []
    assert strings.count(b" csrc/torch/check.h\n") == 1
