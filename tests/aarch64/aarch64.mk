# The extension cross-built for aarch64 and run under user-mode emulation, beside the torch that engines on NPUs have.
# Expects PY (the Python of the environment) and a `setup` target.
.PHONY: test-aarch64

AARCH64_TORCH ?= 2.10.0
AARCH64 = build/aarch64/torch-$(AARCH64_TORCH)

# First without anything but torch; then every op against its oracle and the allocator against its model, few examples of
# each, which takes the emulator minutes. Not what imports half of torch's compiler or starts processes, nor forks while
# threads run, where the emulator's own locks may hang the child (setup_aarch64.py).
test-aarch64: setup
	$(PY) tests/aarch64/setup_aarch64.py --torch $(AARCH64_TORCH)
	cd build && $(abspath $(AARCH64))/python-core $(abspath tests/aarch64/smoke.py)
	$(AARCH64)/python -m pytest -n 2 -p no:cacheprovider --hypothesis-profile=narrow \
		tests/ops tests/cache -k "not opcheck and not transformers and not launch_dump and not fork_while"
