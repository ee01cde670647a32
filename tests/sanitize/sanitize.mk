# The C++ under sanitizers, and what of it the tests reach. Minutes of processor time each: tests/sanitize/README.md.
# Expects PY (the Python of the environment), PIP_INSTALL and the targets `build` and `npu-sim`.
.PHONY: sanitize coverage

sanitize: npu-sim
	$(PY) tests/sanitize/run.py address
	$(PY) tests/sanitize/run.py thread

coverage: build $(VENV)/.ready-for-coverage
	$(PY) tests/sanitize/run.py coverage

$(VENV)/.ready-for-coverage: $(VENV)/.ready
	$(PIP_INSTALL) "gcovr>=8.3"
	touch $@
