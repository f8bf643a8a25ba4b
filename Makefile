PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint check proto bench clean

# Compile real C and C++ with a real compiler that asks a policy; about a minute.
demo: $(VENV)/demo.stamp
	$(BIN)/python -m policybridge_demo $(DEMO)

# Everything: style, types, fresh stubs, behaviour.
test: lint check

lint: $(VENV)/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

check: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(TESTS)

# Decisions per second and latency beside bare echoes; not part of the tests.
bench: $(VENV)/test.stamp
	$(BIN)/python -m policybridge_bench.session $(BENCH)

proto:
	$(PYTHON) proto/generate.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[demo]'
	touch $@

$(VENV)/test.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[demo]' --group test --group lint
	touch $@

clean:
	rm -rf $(VENV) .cache build dist
