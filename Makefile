# `make demo` and `make test` are all that is needed after a clone; both set up and build first. docs/testing.md says what
# the parts of the tests are and cost.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
PY = $(VENV)/bin/python
# Files that are imported are compiled then and kept, also where the environment says otherwise: torch alone is 2,000
# files, which every process of the tests would compile again. Compiling all of torch takes longer.
export PYTHONDONTWRITEBYTECODE =
PIP_INSTALL = $(PY) -m pip install --quiet --no-compile
# One worker a core; more than eight gain nothing. Each takes tests that lie together and share fixtures.
PYTEST = $(PY) -m pytest -n auto --maxprocesses 8 --dist worksteal
export TOKENIZERS_PARALLELISM = false

.PHONY: demo docs test-docs test test-all test-cpu test-cpu-thorough test-ascend-sim test-ascend-sim-thorough test-ascend-sim-a5 explore bench bench-sim fuzz soak mutation typecheck clang lint build build-sim setup clean

setup: $(VENV)/.ready

# torch first and pinned, for this environment alone: an unpinned torch would be a CUDA build of several gigabytes. Another
# hypothesis draws other examples.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --upgrade pip "setuptools>=77" wheel
	$(PIP_INSTALL) torch==2.13.0 cmake ninja
	$(PIP_INSTALL) "transformers==5.24.0" safetensors pytest pytest-xdist "hypothesis==6.170.17" numpy msgspec
	touch $@

# What only bench, docs and lint want.
$(VENV)/.ready-for-developers: $(VENV)/.ready
	$(PIP_INSTALL) furo matplotlib mypy myst-parser ruff sphinx
	touch $@

# The parts of one `make test` share a build: tests/run_parts.py sets BUILT when it has been made.
ifdef BUILT
build build-sim:
else
build: setup
	$(PY) setup.py --quiet build_ext --inplace
	$(PIP_INSTALL) --no-build-isolation --no-deps --editable .

# The kernels against the device simulator, and naive ones to compare with; needed by tests and bench-sim only.
build-sim: build
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake --build build/cmake --target dsv4_ascend_backend dsv4_naive_kernels
endif

demo: build
	$(PY) examples/demo.py

# Parts of the tests, each a target. Those in REST_PARTS are not part of `make test`, to keep it short: tests marked
# thorough, and settings that only repeat tests. A folder's .mk file adds its own with += and is included below.
TEST_PARTS = test-cpu test-ascend-sim
REST_PARTS = test-cpu-thorough test-ascend-sim-thorough test-ascend-sim-a5 test-docs
RUN_PARTS = @$(PYTHON) tests/run_parts.py --make "$(MAKE)" --setup setup --setup build --setup build-sim
QUICK = -m "not thorough"
THOROUGH = -m thorough

test:
	$(RUN_PARTS) $(TEST_PARTS)

test-all:
	$(RUN_PARTS) $(TEST_PARTS) $(REST_PARTS)

test-cpu: build
	$(PYTEST) $(QUICK) tests

test-cpu-thorough: build
	$(PYTEST) $(THOROUGH) tests

test-ascend-sim: build-sim
	DSV4_BACKEND=ascend-sim $(PYTEST) $(QUICK) tests/ops tests/cache

test-ascend-sim-thorough: build-sim
	DSV4_BACKEND=ascend-sim $(PYTEST) $(THOROUGH) tests/ops tests/cache

# The kernels that differ on Atlas A5, as they are there. Of A5 the simulator knows what they call, and no more.
test-ascend-sim-a5: build-sim
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake --build build/cmake --target dsv4_sim_kernels_a5
	DSV4_BACKEND=ascend-sim DSV4_SIM_KERNELS=build/cmake/tests/ascend_backend/a5/libdsv4_sim_kernels.so \
		$(PYTEST) tests/ops/test_apply_rotary.py tests/ops/test_c4_slots_from_full.py

include tests/npu_sim/npu_sim.mk
include tests/transfer/transfer.mk
include tests/engines/engines.mk
include tests/sanitize/sanitize.mk

# New examples for the property tests, until MINUTES have passed or of one SEED; DSV4_BACKEND=ascend-sim in the simulator.
MINUTES ?= 10
explore: build-sim
	$(PY) tests/explore.py --minutes $(MINUTES) $(addprefix --seed ,$(SEED)) $(TESTS)

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

# The kernels against the headers of a CANN toolkit, without its compiler:
# make typecheck CANN_HOME=<folder> [ARCHITECTURE=dav-3510]
ARCHITECTURE ?= dav-2201
typecheck: setup
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake -S . -B build/typecheck -G Ninja \
		-DPython_EXECUTABLE=$(abspath $(PY)) -DDSV4_CANN_HOME=$(CANN_HOME) -DDSV4_ARCHITECTURE=$(ARCHITECTURE)
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake --build build/typecheck --target typecheck_kernels

# The kernels and the device simulator with clang++, without warnings; says so and succeeds where there is no clang++.
clang: build
	PATH="$(abspath $(VENV))/bin:$$PATH" cmake --build build/cmake --target clang_kernels

# Pages for a browser, in build/docs/html; nothing is fetched while they are made.
docs: build $(VENV)/.ready-for-developers
	$(PY) docs/site/build.py

# As many pages as there are, every link, every public name; a warning is an error.
test-docs: build $(VENV)/.ready-for-developers
	DSV4_TEST_SITE=1 $(PY) -m pytest -n 0 tests/test_site.py

include distribution/distribution.mk
include tests/aarch64/aarch64.mk
include tests/other_torch/other_torch.mk

lint: $(VENV)/.ready-for-developers
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

clean:
	rm -rf build dist python/*.egg-info python/dsv4_npu_ops/*.so python/dsv4_npu_ops/_built_for.py
