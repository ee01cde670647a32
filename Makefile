# `make demo` and `make test` are all that is needed after a clone; both set up and build first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
PY = $(VENV)/bin/python
# Files that are imported are compiled then; compiling all of torch takes longer.
PIP_INSTALL = $(PY) -m pip install --quiet --no-compile
# One worker a core; more than eight gain nothing.
PYTEST = $(PY) -m pytest -n auto --maxprocesses 8
export TOKENIZERS_PARALLELISM = false

.PHONY: demo test test-cpu test-ascend-sim bench bench-sim fuzz soak mutation typecheck clang lint build build-sim setup clean

setup: $(VENV)/.ready

# torch first and pinned, for this environment alone: an unpinned torch would be a CUDA build of several gigabytes.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --upgrade pip "setuptools>=77" wheel
	$(PIP_INSTALL) torch==2.13.0 cmake ninja
	$(PIP_INSTALL) "transformers==5.24.0" safetensors pytest pytest-xdist hypothesis numpy
	touch $@

# What only bench and lint want.
$(VENV)/.ready-for-developers: $(VENV)/.ready
	$(PIP_INSTALL) matplotlib mypy ruff
	touch $@

build: setup
	$(PY) setup.py --quiet build_ext --inplace
	$(PIP_INSTALL) --no-build-isolation --no-deps --editable .

# The kernels against the device simulator, and naive ones to compare with; needed by tests and bench-sim only.
build-sim: build
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake --build build/cmake --target dsv4_ascend_backend dsv4_naive_kernels

demo: build
	$(PY) examples/demo.py

# Three runs over the tests: the CPU ops, the device kernels in the simulator, and torch_npu on the simulated NPU.
test: test-cpu test-ascend-sim test-npu-sim test-transfer

test-cpu: build
	$(PYTEST) tests

test-ascend-sim: build-sim
	DSV4_BACKEND=ascend-sim $(PYTEST) tests/ops tests/cache

include tests/npu_sim/npu_sim.mk
include tests/transfer/transfer.mk

# A continuous batch under memory pressure, without a model; hours.
soak: build
	cd tests && $(abspath $(PY)) -m soak.run --steps 1000000

fuzz: build
	cd tests && $(abspath $(PY)) -m fuzz.fuzz_allocator --steps 1000000

# Removes flags, barriers and bounds of the kernels one by one; takes long.
mutation: build-sim
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) tests/mutation/mutate_kernels.py

bench: build $(VENV)/.ready-for-developers
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake --build build/cmake --target dsv4_bench_ops
	$(PY) bench/run.py
	$(PY) bench/admission.py

# What the kernels move and do in the device simulator, beside a naive kernel of each op; fails when a limit is exceeded.
bench-sim: build-sim
	$(PY) bench/simulated_cost.py

# The kernels against the headers of a CANN toolkit, without its compiler: make typecheck CANN_HOME=<folder>
typecheck: setup
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake -S . -B build/typecheck -G Ninja \
		-DPython_EXECUTABLE=$(abspath $(PY)) -DDSV4_CANN_HOME=$(CANN_HOME)
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake --build build/typecheck --target typecheck_kernels

# The kernels and the device simulator with clang++, without warnings; says so and succeeds where there is no clang++.
clang: build
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake --build build/cmake --target clang_kernels

include distribution/distribution.mk
include tests/aarch64/aarch64.mk

lint: $(VENV)/.ready-for-developers
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

clean:
	rm -rf build dist python/*.egg-info python/dsv4_npu_ops/*.so python/dsv4_npu_ops/_built_for.py
