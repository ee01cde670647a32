# Engines' own code beside the plug-ins: their wheels are fetched, without what they depend on, into build/engines.
# Without a package registry the tests are skipped and say so; with DSV4_ENGINES=required they fail.
.PHONY: test-engines test-engines-thorough
TEST_PARTS += test-engines
REST_PARTS += test-engines-thorough

SGLANG_VERSIONS = 0.5.17 0.5.20 0.5.23
VLLM_ASCEND_VERSION = 0.23.0
TOKENSPEED_VERSIONS = 0.1.0 0.1.1
SGLANG_OTHER_VERSIONS = 0.5.15 0.5.16 0.5.18 0.5.19 0.5.21 0.5.22

test-engines: build
	for version in $(SGLANG_VERSIONS); do SGLANG_VERSION=$$version $(PYTEST) tests/engines/sglang || exit 1; done
	VLLM_ASCEND_VERSION=$(VLLM_ASCEND_VERSION) $(PYTEST) tests/engines/vllm_ascend
	VLLM_ASCEND_VERSION=$(VLLM_ASCEND_VERSION) $(PYTEST) tests/engines/kernels
	for version in $(TOKENSPEED_VERSIONS); do TOKENSPEED_VERSION=$$version $(PYTEST) tests/engines/tokenspeed || exit 1; done

# The other versions; and the kernels, in the device simulator.
test-engines-thorough: build-sim
	for version in $(SGLANG_OTHER_VERSIONS); do SGLANG_VERSION=$$version $(PYTEST) tests/engines/sglang || exit 1; done
	for version in $(SGLANG_VERSIONS); do \
		SGLANG_VERSION=$$version DSV4_BACKEND=ascend-sim $(PYTEST) tests/engines/sglang || exit 1; done
	VLLM_ASCEND_VERSION=$(VLLM_ASCEND_VERSION) DSV4_BACKEND=ascend-sim $(PYTEST) tests/engines/vllm_ascend
	for version in $(TOKENSPEED_VERSIONS); do \
		TOKENSPEED_VERSION=$$version DSV4_BACKEND=ascend-sim $(PYTEST) tests/engines/tokenspeed || exit 1; done
