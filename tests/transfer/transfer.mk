# Prefill and decode in two processes over Mooncake's transfer engine, where only the loopback interface exists.
# Expects PY (the Python of the environment) and a `build` target.
.PHONY: mooncake test-transfer
TEST_PARTS += test-transfer

mooncake: build
	$(PY) tests/transfer/setup_mooncake.py

test-transfer: mooncake
	DSV4_TRANSFER=1 $(PY) tests/transfer/loopback_only.py -m pytest -n 0 tests/transfer
