# A thin skin over tools/setup.py, which says what each verb does. Works with GNU make 3.81.
PYTHON ?= $(shell command -v python3 2>/dev/null || command -v python 2>/dev/null || echo python3)

.PHONY: help setup demo test test-all test-long test-soak check bench-quick bench-gate clean

help:
	@$(PYTHON) tools/setup.py help

setup demo test test-all test-long test-soak check bench-quick bench-gate:
	@$(PYTHON) tools/setup.py $@ $(ARGS)

clean:
	rm -rf .venv .ductor .bench
