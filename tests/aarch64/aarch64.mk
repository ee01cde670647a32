# The extension cross-built for aarch64 and run under user-mode emulation, beside the torch that engines on NPUs have.
# Expects PY (the Python of the environment) and a `setup` target.
.PHONY: test-aarch64 nightly-torch

AARCH64_TORCH ?= 2.10.0
OLDEST_TORCH ?= 2.8.0
NEWEST_TORCH ?= 2.15.0
AARCH64 = build/aarch64/torch-$(AARCH64_TORCH)

# First without anything but torch; then every op against its oracle and the allocator against its model, few examples of
# each, which takes the emulator minutes. Not what imports half of torch's compiler or starts processes.
test-aarch64: setup
	$(PY) tests/aarch64/setup_aarch64.py --torch $(AARCH64_TORCH)
	cd build && $(abspath $(AARCH64))/python-core $(abspath tests/aarch64/smoke.py)
	$(AARCH64)/python -m pytest -n 2 -p no:cacheprovider --hypothesis-profile=narrow \
		tests/ops tests/cache -k "not opcheck and not transformers and not launch_dump"

# The oldest and the newest torch that the package supports. The newest asks for CUDA on aarch64 too (484 MB without it):
# compiled against, and its symbols compared, but not loaded.
nightly-torch: setup
	$(MAKE) test-aarch64 AARCH64_TORCH=$(OLDEST_TORCH)
	$(PY) tests/aarch64/check_symbols.py --torch $(NEWEST_TORCH)
