# Ops, allocator and graphs on the CPU with another torch, in an environment of its own: make test-other-torch TORCH=2.15.0.
# Expects PY (the Python of the environment), PYTEST, and a `setup` target.
.PHONY: test-other-torch nightly-torch

# The oldest and the newest torch that the package supports.
OLDEST_TORCH ?= 2.8.0
NEWEST_TORCH ?= 2.15.0
TORCH ?= $(NEWEST_TORCH)
OTHER_PY = $(abspath build/torch-$(TORCH)/bin/python)

test-other-torch: setup
	$(PY) tests/other_torch/set_up.py $(TORCH)
	$(subst $(PY),$(OTHER_PY),$(PYTEST)) $(QUICK) tests/ops tests/cache tests/graph

# The oldest for aarch64, where its wheel is small; the newest for this machine.
nightly-torch: setup
	$(MAKE) test-aarch64 AARCH64_TORCH=$(OLDEST_TORCH)
	$(MAKE) test-other-torch TORCH=$(NEWEST_TORCH)
