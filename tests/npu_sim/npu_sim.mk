# Tests on the simulated NPU, in a process of their own because torch_npu patches torch.
# Expects PY (the Python of the environment), PYTEST and a `build` target, which makes the extension that the ops link to.
.PHONY: npu-sim test-npu-sim test-npu-sim-thorough
TEST_PARTS += test-npu-sim
REST_PARTS += test-npu-sim-thorough

npu-sim: build
	$(PY) tests/npu_sim/setup_torch_npu.py

# The simulated NPU itself and what only it shows; then the tests of the ops and of the allocator through torch_npu.
test-npu-sim: npu-sim
	DSV4_NPU_SIM=1 TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(PYTEST) $(QUICK) tests/npu
	DSV4_BACKEND=npu-sim TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(PYTEST) $(QUICK) tests/ops tests/cache

# What the above leaves out; then tests of the ops, but for the slow ones and for arguments that no device sees, without
# torch_npu's task queue and caching allocator, so that every tensor has tight bounds; and some with its sanitizer, which
# learns from the caching allocator when an address changes hands.
test-npu-sim-thorough: npu-sim
	DSV4_NPU_SIM=1 TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(PYTEST) $(THOROUGH) tests/npu
	DSV4_BACKEND=npu-sim TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(PYTEST) $(THOROUGH) tests/ops tests/cache
	DSV4_BACKEND=npu-sim TORCH_DEVICE_BACKEND_AUTOLOAD=0 TASK_QUEUE_ENABLE=0 PYTORCH_NO_NPU_MEMORY_CACHING=1 \
		$(PYTEST) tests/ops -k "(oracle or overwritten or equal) and not transformers"
	DSV4_BACKEND=npu-sim TORCH_DEVICE_BACKEND_AUTOLOAD=0 TASK_QUEUE_ENABLE=0 TORCH_NPU_SANITIZER=1 \
		$(PYTEST) tests/ops -k "oracle or overwritten"
