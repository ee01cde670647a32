# The C++ under sanitizers, and what of it the tests reach. Minutes of processor time each: tests/sanitize/README.md.
# Expects PY (the Python of the environment) and the targets `build` and `npu-sim`.
.PHONY: sanitize coverage

sanitize: npu-sim
	$(PY) tests/sanitize/run.py address
	$(PY) tests/sanitize/run.py thread

coverage: build
	$(PY) tests/sanitize/run.py coverage
