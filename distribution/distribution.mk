# Wheels and the source distribution, in dist/. Expects PY (the Python of the environment) and a `setup` target.
.PHONY: wheel wheels sdist stubs

# Releases of torch that `make wheels` builds for, beside the installed one. Nothing is installed for it: a wheel of torch
# for aarch64 is 100 to 150 MB; one for x86_64 is 0.5 to 0.9 GB, with CUDA, so none is fetched unless it is named here.
AARCH64_TORCHES ?= 2.8.0 2.10.0
X86_TORCHES ?=

# An environment that somebody names (make wheel VENV=..) is used as it is; ours is made first.
wheel: $(if $(filter file,$(origin VENV)),setup)
	@$(PY) distribution/wheels.py

wheels: wheel
	@$(PY) distribution/wheels.py --machine x86_64 --torch $(X86_TORCHES)
	@$(PY) distribution/wheels.py --machine aarch64 --torch $(AARCH64_TORCHES)

sdist: $(if $(filter file,$(origin VENV)),setup)
	$(PY) -c "from setuptools.build_meta import build_sdist; print('dist/' + build_sdist('dist'))"

# python/dsv4_npu_ops/torch_ops.pyi after a change of a schema; tests/test_type_stubs.py compares.
stubs: build
	$(PY) distribution/op_stubs.py
