# Tests on the simulated NPU, in a process of their own because torch_npu patches torch.
# Expects PY (the Python of the environment), PYTEST, and `setup` and `build` targets, which make the environment and the
# extension that the ops link to. TORCH_NPU is the torch_npu to test with; one for another torch than the environment's
# gets an environment of its own, with an extension built for that torch.
.PHONY: npu-sim test-npu-sim test-npu-sim-thorough test-torch-npu-versions
TEST_PARTS += test-npu-sim
REST_PARTS += test-npu-sim-thorough

TORCH_NPU_OF_PY = 2.13.0
TORCH_NPU ?= $(TORCH_NPU_OF_PY)
# The oldest that engines have, and the newest.
TORCH_NPU_VERSIONS ?= 2.10.0.post4 2.14.0

ifeq ($(TORCH_NPU),$(TORCH_NPU_OF_PY))
NPU_SIM_PY = $(PY)
npu-sim: build
	$(PY) tests/npu_sim/setup_torch_npu.py
else
# 2.10.0.post4 is for torch 2.10.0.
TORCH_OF_NPU = $(firstword $(subst .post, ,$(TORCH_NPU)))
NPU_SIM_PY = $(abspath build/torch-$(TORCH_OF_NPU)/bin/python)
npu-sim test-npu-sim test-npu-sim-thorough: export NPU_SIM_BUILD_DIR = $(abspath build/torch_npu-$(TORCH_NPU)/npu_sim)
npu-sim test-npu-sim test-npu-sim-thorough: export NPU_SIM_TORCH_NPU_DIR = $(abspath build/torch_npu-$(TORCH_NPU)/package)
npu-sim: setup
	$(PY) tests/other_torch/set_up.py $(TORCH_OF_NPU)
	PATH="$(abspath $(VENV))/bin:$$PATH" $(NPU_SIM_PY) tests/npu_sim/setup_torch_npu.py --version $(TORCH_NPU)
endif
NPU_SIM_PYTEST = $(subst $(PY),$(NPU_SIM_PY),$(PYTEST))

# The simulated NPU itself and what only it shows; then the tests of the ops and of the allocator through torch_npu.
test-npu-sim: npu-sim
	DSV4_NPU_SIM=1 TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(NPU_SIM_PYTEST) $(QUICK) tests/npu
	DSV4_BACKEND=npu-sim TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(NPU_SIM_PYTEST) $(QUICK) tests/ops tests/cache

# Tests of the ops again, but for the slow ones and for arguments that no device sees, without
# torch_npu's task queue and caching allocator, so that every tensor has tight bounds; and some with its sanitizer, which
# learns from the caching allocator when an address changes hands.
test-npu-sim-thorough: npu-sim
	DSV4_BACKEND=npu-sim TORCH_DEVICE_BACKEND_AUTOLOAD=0 TASK_QUEUE_ENABLE=0 PYTORCH_NO_NPU_MEMORY_CACHING=1 \
		$(NPU_SIM_PYTEST) tests/ops -k "(oracle or overwritten or equal) and not transformers"
	DSV4_BACKEND=npu-sim TORCH_DEVICE_BACKEND_AUTOLOAD=0 TASK_QUEUE_ENABLE=0 TORCH_NPU_SANITIZER=1 \
		$(NPU_SIM_PYTEST) tests/ops -k "oracle or overwritten"

# Takes long: each version has a torch of its own, of up to 1.7 GB, and builds for it.
test-torch-npu-versions:
	set -e; for version in $(TORCH_NPU_VERSIONS); do $(MAKE) test-npu-sim TORCH_NPU=$$version; done
