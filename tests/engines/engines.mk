# Engines' own code beside the plug-ins: their wheels are fetched, without what they depend on, into build/engines.
# Without a package registry the tests are skipped and say so; with DSV4_ENGINES=required they fail.
.PHONY: test-engines test-engines-sim
TEST_PARTS += test-engines
REST_PARTS += test-engines-sim

SGLANG_VERSIONS = 0.5.17 0.5.18 0.5.20 0.5.23

test-engines: build
	for version in $(SGLANG_VERSIONS); do SGLANG_VERSION=$$version $(PYTEST) tests/engines/sglang || exit 1; done

test-engines-sim: build-sim
	SGLANG_VERSION=0.5.23 DSV4_BACKEND=ascend-sim $(PYTEST) tests/engines/sglang
