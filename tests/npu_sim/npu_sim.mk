# Tests on the simulated NPU, in a process of their own because torch_npu patches torch.
# Expects PY (the Python of the environment) and a `build` target, which makes the extension that the ops link to.
.PHONY: npu-sim test-npu-sim

npu-sim: build
	$(PY) tests/npu_sim/setup_torch_npu.py

test-npu-sim: npu-sim
	DSV4_NPU_SIM=1 TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(PY) -m pytest tests/npu
